// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/internal/render"
)

// lastApplied is kubectl's record of the last apply. With it, kubectl apply at the hub removes what the user
// has removed from the manifest, as it did in the cluster.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// Clean returns an object without the fields that an API server or a controller has set: as its user wrote it,
// with the defaults of its kind.
func Clean(o *unstructured.Unstructured) *unstructured.Unstructured {
	applied, hadApplied := o.GetAnnotations()[lastApplied]
	clean := o.DeepCopy()
	render.Prune(clean)
	removeMarks(clean)
	switch clean.GroupVersionKind().GroupKind() {
	case schema.GroupKind{Kind: "PersistentVolumeClaim"}:
		unstructured.RemoveNestedField(clean.Object, "spec", "volumeName") // a volume of the cluster
	case schema.GroupKind{Group: "apps", Kind: "StatefulSet"}:
		cleanClaimTemplates(clean)
	}
	if hadApplied {
		setAnnotation(clean, lastApplied, applied)
	}
	return clean
}

// removeMarks removes the labels with which agents mark an object, and those of the cluster's admin.
func removeMarks(o *unstructured.Unstructured) {
	labels := o.GetLabels()
	delete(labels, v1alpha1.ManagedLabel)
	delete(labels, v1alpha1.AccessLabel)
	if len(labels) == 0 {
		unstructured.RemoveNestedField(o.Object, "metadata", "labels")
		return
	}
	o.SetLabels(labels)
}

// cleanClaimTemplates removes what an API server adds to the claims of a StatefulSet.
func cleanClaimTemplates(o *unstructured.Unstructured) {
	field, _, _ := unstructured.NestedFieldNoCopy(o.Object, "spec", "volumeClaimTemplates")
	claims, _ := field.([]any)
	for _, c := range claims {
		if c, ok := c.(map[string]any); ok {
			delete(c, "status")
			unstructured.RemoveNestedField(c, "metadata", "creationTimestamp")
		}
	}
}

func setAnnotation(o *unstructured.Unstructured, key, value string) {
	annotations := o.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[key] = value
	o.SetAnnotations(annotations)
}

// ForHub returns the object that a user creates at the hub to place the live object in its cluster, and to have
// the agent adopt it there.
func ForHub(live *unstructured.Unstructured, cluster string) *unstructured.Unstructured {
	o := Clean(live)
	setAnnotation(o, v1alpha1.ClustersAnnotation, cluster)
	setAnnotation(o, v1alpha1.ConflictAnnotation, string(v1alpha1.ConflictAdopt))
	return o
}

// Manifest returns what an agent applies for an object of its hub, if no Customization changes it. It is for
// the live object with that UID.
func Manifest(atHub *unstructured.Unstructured, uid types.UID) *unstructured.Unstructured {
	o := atHub.DeepCopy()
	render.Prune(o)
	labels := o.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels[v1alpha1.ManagedLabel] = "true"
	delete(labels, v1alpha1.AccessLabel)
	o.SetLabels(labels)
	o.SetUID(uid)
	return o
}

// Comparable returns the part of an object that its user writes, to compare two copies of it. Annotations and
// labels of placement, and kubectl's record, are no part of it.
func Comparable(o *unstructured.Unstructured) map[string]any {
	clean := Clean(o)
	annotations := clean.GetAnnotations()
	delete(annotations, lastApplied)
	if len(annotations) == 0 {
		unstructured.RemoveNestedField(clean.Object, "metadata", "annotations")
	} else {
		clean.SetAnnotations(annotations)
	}
	return clean.Object
}
