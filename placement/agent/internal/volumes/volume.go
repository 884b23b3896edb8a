// SPDX-License-Identifier: Apache-2.0

package volumes

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// maxAttributesBytes is how large the attributes of a volume may be that the hub passes on.
const maxAttributesBytes = 8 << 10

// Prepare makes the PersistentVolume of an order before the agent creates the claim. The error is a
// *RefusalError where a retry does not help.
func (o *Operator) Prepare(ctx context.Context, order *v1alpha1.VolumeOrder, claim Claim) error {
	switch {
	case order == nil || order.Action == v1alpha1.VolumeKeep:
		return nil
	case order.Action != v1alpha1.VolumeBind || order.Source == nil:
		return &RefusalError{fmt.Sprintf("the volume of PersistentVolumeClaim %s/%s is on its way to another cluster: the agent does not create the claim again", claim.Namespace, claim.Name)}
	}
	if refusal, err := o.driverRefusal(ctx, order.Source); err != nil || refusal != "" {
		return cmp.Or[error](err, &RefusalError{refusal})
	}
	driver, err := o.Storage.CSIDrivers().Get(ctx, order.Source.Driver, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read CSIDriver %s: %w", order.Source.Driver, err)
	}
	list, err := o.Core.PersistentVolumes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return &RefusalError{asMessage(fmt.Errorf("list PersistentVolumes: %w", err))}
	}
	for i := range list.Items {
		switch pv := &list.Items[i]; {
		case !isVolume(pv, order.Source) && hasSameAttributes(pv, driver, order.Source):
			return &RefusalError{fmt.Sprintf("PersistentVolume %s has the same attributes: the driver may mount the same volume", pv.Name)}
		case !isVolume(pv, order.Source):
		case isMadeFor(pv, claim) && pv.DeletionTimestamp == nil && fencedClaim(pv) == nil:
			return nil
		default:
			return &RefusalError{fmt.Sprintf("PersistentVolume %s has the same volume: no cluster gets a volume that it uses already", pv.Name)}
		}
	}
	if _, err := o.Core.PersistentVolumes().Create(ctx, newVolume(order.Source, claim), metav1.CreateOptions{FieldManager: v1alpha1.AgentFieldManager}); err != nil {
		return fmt.Errorf("create the PersistentVolume of PersistentVolumeClaim %s/%s: %w", claim.Namespace, claim.Name, err)
	}
	return nil
}

// RefusalError is why the agent does not create a claim.
type RefusalError struct{ message string }

// Error returns the message.
func (e *RefusalError) Error() string { return e.message }

// newVolume returns the PersistentVolume for a claim that does not exist yet.
func newVolume(source *v1alpha1.VolumeSource, claim Claim) *corev1.PersistentVolume {
	pv := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name:        v1alpha1.VolumeName(claim.Source, source),
			Labels:      map[string]string{v1alpha1.ManagedLabel: "true"},
			Annotations: map[string]string{v1alpha1.HubUIDAnnotation: string(claim.Hub), v1alpha1.SourceUIDAnnotation: string(claim.Source)},
		},
		Spec: corev1.PersistentVolumeSpec{
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			StorageClassName:              source.StorageClass,
			ClaimRef:                      &corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: claim.Namespace, Name: claim.Name},
		},
	}
	pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{
		Driver: source.Driver, VolumeHandle: source.Handle, ReadOnly: source.ReadOnly, FSType: source.FSType, VolumeAttributes: source.Attributes,
	}
	for _, mode := range source.AccessModes {
		pv.Spec.AccessModes = append(pv.Spec.AccessModes, corev1.PersistentVolumeAccessMode(mode))
	}
	if mode := corev1.PersistentVolumeMode(source.VolumeMode); mode != "" {
		pv.Spec.VolumeMode = &mode
	}
	if source.Capacity != nil {
		pv.Spec.Capacity = corev1.ResourceList{corev1.ResourceStorage: *source.Capacity}
	}
	return pv
}

// sourceOf returns the volume of a PersistentVolume of a CSI driver.
func sourceOf(pv *corev1.PersistentVolume) *v1alpha1.VolumeSource {
	csi := pv.Spec.CSI
	s := &v1alpha1.VolumeSource{
		Driver: csi.Driver, Handle: csi.VolumeHandle, FSType: csi.FSType, ReadOnly: csi.ReadOnly, Attributes: csi.VolumeAttributes,
		StorageClass: pv.Spec.StorageClassName,
	}
	for _, mode := range pv.Spec.AccessModes {
		s.AccessModes = append(s.AccessModes, string(mode))
	}
	if pv.Spec.VolumeMode != nil {
		s.VolumeMode = string(*pv.Spec.VolumeMode)
	}
	if q, ok := pv.Spec.Capacity[corev1.ResourceStorage]; ok {
		s.Capacity = &q
	}
	return s
}

// unmovable returns why no other cluster can use a volume; "" when one can.
func (o *Operator) unmovable(ctx context.Context, pv *corev1.PersistentVolume) (string, error) {
	csi := pv.Spec.CSI
	at := "PersistentVolume " + pv.Name
	switch {
	case csi == nil:
		return at + " is not of a CSI driver: only these move", nil
	case pv.Spec.NodeAffinity != nil:
		return at + ": spec.nodeAffinity: the volume is local to nodes or a zone of its cluster", nil
	case csi.ControllerPublishSecretRef != nil || csi.NodeStageSecretRef != nil || csi.NodePublishSecretRef != nil ||
		csi.ControllerExpandSecretRef != nil || csi.NodeExpandSecretRef != nil:
		return at + ": spec.csi refers to Secrets of its cluster, which another cluster may not have", nil
	case pv.DeletionTimestamp != nil:
		return at + " is being deleted", nil
	}
	raw, err := json.Marshal(csi.VolumeAttributes)
	if err != nil {
		return "", fmt.Errorf("encode the attributes of %s: %w", at, err)
	}
	if len(raw) > maxAttributesBytes || len(csi.VolumeAttributes) > 64 {
		return fmt.Sprintf("%s: spec.csi.volumeAttributes must have at most 64 entries and %d bytes", at, maxAttributesBytes), nil
	}
	return o.driverRefusal(ctx, sourceOf(pv))
}

// driverRefusal returns why the agent does not move a volume of a driver; "" when it does. The cluster's admin
// allows that by a label on the CSIDriver.
func (o *Operator) driverRefusal(ctx context.Context, source *v1alpha1.VolumeSource) (string, error) {
	driver := source.Driver
	d, err := o.Storage.CSIDrivers().Get(ctx, driver, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Sprintf("the cluster has no CSIDriver %s", driver), nil
	case apierrors.IsForbidden(err):
		return asMessage(err), nil
	case err != nil:
		return "", fmt.Errorf("read CSIDriver %s: %w", driver, err)
	case d.Labels[v1alpha1.AccessLabel] != v1alpha1.AccessUse:
		return fmt.Sprintf("the cluster's admin must allow the hub to move volumes of CSIDriver %s: kubectl label csidriver %s %s=%s",
			driver, driver, v1alpha1.AccessLabel, v1alpha1.AccessUse), nil
	case d.Spec.AttachRequired != nil && !*d.Spec.AttachRequired && !source.IsShared():
		return fmt.Sprintf("CSIDriver %s: spec.attachRequired must be true for a volume that one cluster may attach: else nothing tells whether it is detached", driver), nil
	}
	return attributesRefusal(d, source), nil
}

// isVolume tells whether a PersistentVolume is the volume of an order.
func isVolume(pv *corev1.PersistentVolume, source *v1alpha1.VolumeSource) bool {
	return source != nil && pv.Spec.CSI != nil && pv.Spec.CSI.Driver == source.Driver && pv.Spec.CSI.VolumeHandle == source.Handle
}

// isMadeFor tells whether the agent made a PersistentVolume for a claim of the hub.
func isMadeFor(pv *corev1.PersistentVolume, claim Claim) bool {
	return pv.Annotations[v1alpha1.HubUIDAnnotation] == string(claim.Hub) && pv.Annotations[v1alpha1.SourceUIDAnnotation] == string(claim.Source) &&
		pv.Labels[v1alpha1.ManagedLabel] == "true"
}

// fencedRef is the value of FencedClaimAnnotation.
type fencedRef struct {
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	UID       types.UID `json:"uid"`
}

// fencedClaim returns the claim that a volume had before its fence; nil when it has none.
func fencedClaim(pv *corev1.PersistentVolume) *corev1.ObjectReference {
	text := pv.Annotations[v1alpha1.FencedClaimAnnotation]
	ref := fencedRef{}
	if text == "" || json.NewDecoder(strings.NewReader(text)).Decode(&ref) != nil {
		return nil
	}
	return &corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: ref.Namespace, Name: ref.Name, UID: ref.UID}
}

// provisionerAttribute is what Kubernetes' external-provisioner adds to each volume. No driver mounts by it.
const provisionerAttribute = "storage.kubernetes.io/csiProvisionerIdentity"

// attributesRefusal returns why the agent does not move a volume with these attributes; "" when it does. A driver may
// mount what its attributes name, such as a server and a path, whatever the handle is: the cluster's admin lists those
// that another cluster may choose.
func attributesRefusal(d *storagev1.CSIDriver, source *v1alpha1.VolumeSource) string {
	listed := listedAttributes(d)
	for _, key := range slices.Sorted(maps.Keys(source.Attributes)) {
		value, ok := listed[key]
		switch {
		case key == provisionerAttribute || ok && value == nil:
		case !ok:
			return fmt.Sprintf("the cluster's admin must list the volume's attribute %q if each cluster of the storage may choose it: kubectl annotate csidriver %s %s=KEY,KEY=VALUE",
				key, d.Name, v1alpha1.VolumeAttributesAnnotation)
		case *value != source.Attributes[key]:
			return fmt.Sprintf("CSIDriver %s: metadata.annotations[%s]: the volume's attribute %q must be %q, and is %q",
				d.Name, v1alpha1.VolumeAttributesAnnotation, key, *value, source.Attributes[key])
		}
	}
	return ""
}

// listedAttributes returns the attributes that the cluster's admin allows, with their only value; nil: any value.
func listedAttributes(d *storagev1.CSIDriver) map[string]*string {
	listed := map[string]*string{}
	for entry := range strings.SplitSeq(d.Annotations[v1alpha1.VolumeAttributesAnnotation], ",") {
		key, value, fixed := strings.Cut(strings.TrimSpace(entry), "=")
		switch {
		case key == "":
		case fixed:
			listed[key] = &value
		default:
			listed[key] = nil
		}
	}
	return listed
}

// hasSameAttributes reports whether a PersistentVolume of the driver has the attributes of a volume that differ between
// volumes: those that may have any value. The driver may mount the same volume then.
func hasSameAttributes(pv *corev1.PersistentVolume, d *storagev1.CSIDriver, source *v1alpha1.VolumeSource) bool {
	if pv.Spec.CSI == nil || pv.Spec.CSI.Driver != source.Driver {
		return false
	}
	same := false
	for key, fixed := range listedAttributes(d) {
		value, ok := source.Attributes[key]
		if !ok || fixed != nil || key == provisionerAttribute {
			continue
		}
		if other, ok := pv.Spec.CSI.VolumeAttributes[key]; !ok || other != value {
			return false
		}
		same = true
	}
	return same
}
