// SPDX-License-Identifier: Apache-2.0

package kinds

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// Key identifies an object at the hub. It has no version: the registry knows the served one.
type Key struct {
	// GroupKind of the object.
	schema.GroupKind
	// Namespace is empty for a cluster-scoped object.
	Namespace string
	// Name of the object.
	Name string
}

// KeyOf returns the key of the object that a reference names.
func KeyOf(r v1alpha1.ObjectReference) Key {
	return Key{GroupKind: schema.GroupKind{Group: r.Group, Kind: r.Kind}, Namespace: r.Namespace, Name: r.Name}
}

// String formats the key for log messages and errors.
func (k Key) String() string {
	if k.Namespace == "" {
		return fmt.Sprintf("%s %s", k.GroupKind, k.Name)
	}
	return fmt.Sprintf("%s %s/%s", k.GroupKind, k.Namespace, k.Name)
}

// Object returns namespace and name of the object.
func (k Key) Object() client.ObjectKey {
	return client.ObjectKey{Namespace: k.Namespace, Name: k.Name}
}

// RecordName returns the name that the object's Assignment and Works share.
func (k Key) RecordName() string { return v1alpha1.WorkName(k.Group, k.Kind, k.Namespace, k.Name) }

// Assignment returns namespace and name of the object's Assignment.
func (k Key) Assignment() client.ObjectKey {
	namespace := k.Namespace
	if namespace == "" {
		namespace = v1alpha1.SystemNamespace
	}
	return client.ObjectKey{Namespace: namespace, Name: k.RecordName()}
}

// Work returns namespace and name of the object's Work for a cluster.
func (k Key) Work(cluster string) client.ObjectKey {
	return client.ObjectKey{Namespace: v1alpha1.ClusterNamespacePrefix + cluster, Name: k.RecordName()}
}

// IsPod reports whether the object is a Pod: it runs once, and counts as one replica.
func (k Key) IsPod() bool { return k.Group == "" && k.Kind == "Pod" }

// IsSecret reports whether the object is a Secret. Its data travel in a Secret beside its Work:
// more users may read Works than Secrets, and encryption at rest covers Secrets only.
func (k Key) IsSecret() bool { return k.Group == "" && k.Kind == "Secret" }

// ClusterOfNamespace returns the name of the Cluster that a namespace at the hub belongs to, and
// whether it belongs to one.
func ClusterOfNamespace(namespace string) (cluster string, ok bool) {
	return strings.CutPrefix(namespace, v1alpha1.ClusterNamespacePrefix)
}
