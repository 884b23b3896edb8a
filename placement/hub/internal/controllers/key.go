// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// Key names an object at the hub.
type Key struct {
	// GroupKind of the object.
	schema.GroupKind
	// Namespace is empty for a cluster-scoped object.
	Namespace string
	// Name of the object.
	Name string
}

// String is for logs.
func (k Key) String() string {
	if k.Namespace == "" {
		return fmt.Sprintf("%s %s", k.GroupKind, k.Name)
	}
	return fmt.Sprintf("%s %s/%s", k.GroupKind, k.Namespace, k.Name)
}

// object is where the object itself is.
func (k Key) object() client.ObjectKey {
	return client.ObjectKey{Namespace: k.Namespace, Name: k.Name}
}

// record is the name that Assignment and Works have.
func (k Key) record() string { return v1alpha1.WorkName(k.Group, k.Kind, k.Namespace, k.Name) }

// assignment is where the object's Assignment is.
func (k Key) assignment() client.ObjectKey {
	namespace := k.Namespace
	if namespace == "" {
		namespace = v1alpha1.SystemNamespace
	}
	return client.ObjectKey{Namespace: namespace, Name: k.record()}
}

// work is where the object's Work for a cluster is.
func (k Key) work(cluster string) client.ObjectKey {
	return client.ObjectKey{Namespace: v1alpha1.ClusterNamespacePrefix + cluster, Name: k.record()}
}

// keyOf is the object that a reference means.
func keyOf(r v1alpha1.ObjectReference) Key {
	return Key{GroupKind: schema.GroupKind{Group: r.Group, Kind: r.Kind}, Namespace: r.Namespace, Name: r.Name}
}
