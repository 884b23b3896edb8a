// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/internal/policy"
)

// Placeable tells whether a hub places namespaced objects of a kind.
func Placeable(kind schema.GroupKind) bool { return policy.Placeable(kind, true) }

// helmReleaseType is the type of Secrets in which Helm records a release.
const helmReleaseType = "helm.sh/release.v1"

// StaysInCluster returns why an object of a cluster cannot come under a hub; "" if it can.
func StaysInCluster(live *unstructured.Unstructured) string {
	kind := live.GroupVersionKind().GroupKind()
	if owners := live.GetOwnerReferences(); len(owners) > 0 {
		return fmt.Sprintf("%s %s owns it", owners[0].Kind, owners[0].Name)
	}
	switch {
	case !Placeable(kind), !policy.PlaceableObject(kind, live.GetNamespace(), live.GetName()):
		return "each cluster has its own"
	case live.GetDeletionTimestamp() != nil:
		return "it is being deleted"
	case kind != schema.GroupKind{Kind: "Secret"}:
		return ""
	}
	switch kind, _, _ := unstructured.NestedString(live.Object, "type"); kind {
	case string(corev1.SecretTypeServiceAccountToken), "bootstrap.kubernetes.io/token":
		return "its token is valid in this cluster only"
	case helmReleaseType:
		return "Helm records a release of this cluster in it"
	}
	return ""
}

// SourceUID returns the UID of the object at a hub that an agent has applied as this one; "" when no agent has.
func SourceUID(live *unstructured.Unstructured) string {
	if live.GetLabels()[v1alpha1.ManagedLabel] != "true" {
		return ""
	}
	return live.GetAnnotations()[v1alpha1.SourceUIDAnnotation]
}

// ServiceAccount returns the ServiceAccount as which Pods of an object run; "" for the default one.
func ServiceAccount(o *unstructured.Unstructured) string {
	path := append(templatePath(o.GroupVersionKind().GroupKind()), "spec", "serviceAccountName")
	name, _, _ := unstructured.NestedString(o.Object, path...)
	if name == "default" {
		return ""
	}
	return name
}

// RestartsPods tells whether a change of a field makes the controller of an object replace its Pods.
func RestartsPods(kind schema.GroupKind, field string) bool {
	if kind.Group != "apps" && kind != (schema.GroupKind{Kind: "ReplicationController"}) {
		return false
	}
	return field == "spec.template" || strings.HasPrefix(field, "spec.template.")
}

// templatePath returns the path of an object's Pod template; a Pod is its own.
func templatePath(kind schema.GroupKind) []string {
	switch kind {
	case schema.GroupKind{Kind: "Pod"}:
		return nil
	case schema.GroupKind{Group: "batch", Kind: "CronJob"}:
		return []string{"spec", "jobTemplate", "spec", "template"}
	}
	return []string{"spec", "template"}
}

// YieldsReplicas tells whether the policies at a hub leave spec.replicas of an object to its autoscaler.
func YieldsReplicas(o *unstructured.Unstructured, namespaceLabels map[string]string, local []v1alpha1.Placement, global []v1alpha1.ClusterPlacement) bool {
	p, err := policy.Resolve(policy.Object{
		Kind: o.GroupVersionKind().GroupKind(), Namespace: o.GetNamespace(), Name: o.GetName(), Namespaced: true,
		Labels: o.GetLabels(), Annotations: o.GetAnnotations(), NamespaceLabels: namespaceLabels,
	}, local, global)
	if err != nil || p == nil {
		return false
	}
	return p.Spec.Apply.YieldsReplicas()
}
