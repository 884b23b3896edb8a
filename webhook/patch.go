// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"encoding/json"
	"net/http"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	v1 "github.com/patchbay-cni/patchbay/api/v1"
)

func specEqual(a, b *v1.NetworkSpec) bool { return apiequality.Semantic.DeepEqual(a, b) }

// patched answers with the assigned attributes only. The Go type would add empty
// fields that the user did not write, and drop those that it does not know.
func patched(raw []byte, obj *v1.TenantNetwork) admission.Response {
	var u unstructured.Unstructured
	if err := json.Unmarshal(raw, &u.Object); err != nil {
		return refusal(http.StatusBadRequest, metav1.StatusReasonBadRequest, err)
	}
	annotations := u.GetAnnotations()
	if text, ok := obj.Annotations[v1.AssignedAnnotation]; ok {
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[v1.AssignedAnnotation] = text
	} else {
		delete(annotations, v1.AssignedAnnotation)
	}
	u.SetAnnotations(annotations)
	o := obj.Spec.Options
	for _, set := range []struct {
		value any
		unset bool
		path  []string
	}{
		{obj.Spec.NetworkID, false, []string{"spec", "NetworkID"}},
		{o.Device, o.Device == "", []string{"spec", "Options", "host_device"}},
		{o.DevicePool, o.DevicePool == "", []string{"spec", "Options", "device_pool"}},
		{int64(o.VLAN), o.VLAN == 0, []string{"spec", "Options", "vlan"}},
		{int64(o.VXLAN), o.VXLAN == 0, []string{"spec", "Options", "vxlan"}},
	} {
		if set.unset {
			continue // it was not set either, or empty
		}
		if err := unstructured.SetNestedField(u.Object, set.value, set.path...); err != nil {
			return refusal(http.StatusBadRequest, metav1.StatusReasonBadRequest, err)
		}
	}
	changed, err := json.Marshal(u.Object)
	if err != nil {
		return answer(err)
	}
	return admission.PatchResponseFromRaw(raw, changed)
}
