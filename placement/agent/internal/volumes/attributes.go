// SPDX-License-Identifier: Apache-2.0

package volumes

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

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
