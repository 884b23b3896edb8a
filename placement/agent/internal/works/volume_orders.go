// SPDX-License-Identifier: Apache-2.0

package works

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/agent/internal/volumes"
)

// ordersVolume tells whether a Work orders something of the volume of an object.
func ordersVolume(spec *v1alpha1.WorkSpec, t desiredObject) bool {
	return spec.Volume != nil && t.gvr == corev1.SchemeGroupVersion.WithResource("persistentvolumeclaims")
}

// claimOf returns the claim of an order.
func claimOf(spec *v1alpha1.WorkSpec, t desiredObject, uid types.UID) volumes.Claim {
	return volumes.Claim{
		Namespace: t.object.GetNamespace(), Name: t.object.GetName(), UID: uid, Hub: spec.HubUID, Source: spec.Source.UID,
	}
}

// prepareVolume makes the volume of a claim before the claim. The hub is refused if the cluster's admin has not
// allowed that.
func (w *workReconciler) prepareVolume(ctx context.Context, spec *v1alpha1.WorkSpec, t desiredObject) error {
	if o := spec.Volume; o.Action == v1alpha1.VolumeBind && o.Source != nil {
		// Without the name, the cluster would make an empty volume.
		name, _, _ := unstructured.NestedString(t.object.Object, "spec", "volumeName")
		if want := v1alpha1.VolumeName(spec.Source.UID, o.Source); name != want {
			return &conditionError{reason: v1alpha1.ReasonRefused, message: fmt.Sprintf("%s: spec.volumeName must be %s, the volume that the hub binds", t, want)}
		}
	}
	err := w.volumes.Prepare(ctx, spec.Volume, claimOf(spec, t, ""))
	if refusal, ok := errors.AsType[*volumes.RefusalError](err); ok {
		return &conditionError{reason: v1alpha1.ReasonRefused, message: fmt.Sprintf("%s: %s", t, refusal.Error())}
	}
	return err
}

// isVolumeOnTheWay tells whether an order about a volume is not carried out. The agent does not watch all that it
// waits for.
func isVolumeOnTheWay(spec *v1alpha1.WorkSpec, m v1alpha1.ManifestStatus) bool {
	if spec.Volume == nil || m.Volume == nil {
		return false
	}
	return spec.Volume.Action != v1alpha1.VolumeKeep && m.Volume.Action != spec.Volume.Action || m.Volume.Waiting != ""
}

// maxVolumeClaims is how many claims a report names.
const maxVolumeClaims = 16

// volumeClaims returns the claims that Pods of an object use, and those of the last report that still
// exist: an operator may restart all Pods at once.
func (w *workReconciler) volumeClaims(ctx context.Context, uid types.UID, before v1alpha1.ManifestStatus) []string {
	if uid == "" {
		return nil
	}
	found := w.pods.VolumeClaims(uid)
	for _, claim := range before.VolumeClaims {
		if before.UID == uid && !found[claim] {
			found[claim] = !w.isVolumeClaimMissing(ctx, claim)
		}
	}
	maps.DeleteFunc(found, func(_ string, exists bool) bool { return !exists })
	names := slices.Sorted(maps.Keys(found))
	return names[:min(len(names), maxVolumeClaims)]
}

// isVolumeClaimMissing tells whether a PersistentVolumeClaim, named namespace/name, is known not to exist.
func (w *workReconciler) isVolumeClaimMissing(ctx context.Context, claim string) bool {
	ns, name, _ := strings.Cut(claim, "/")
	_, err := w.dynamic.Resource(corev1.SchemeGroupVersion.WithResource("persistentvolumeclaims")).Namespace(ns).Get(ctx, name, metav1.GetOptions{})
	return apierrors.IsNotFound(err)
}

// hasUnusedVolumeClaims tells whether a report names claims that no Pod uses now.
func (w *workReconciler) hasUnusedVolumeClaims(ms v1alpha1.ManifestStatus) bool {
	used := w.pods.VolumeClaims(ms.UID)
	return slices.ContainsFunc(ms.VolumeClaims, func(claim string) bool { return !used[claim] })
}
