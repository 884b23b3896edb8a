// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"encoding/json"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	v1 "github.com/patchbay-cni/patchbay/api/v1"
	"github.com/patchbay-cni/patchbay/tenant"
)

// An entry in status.ipam.held is a node's: whatever it says costs no work.
func FuzzEnds(f *testing.F) {
	for _, seed := range []string{"10.0.0.5-10.0.0.9,10.0.0.12", "fd00::-fdff::", "-", ",", "10.0.0.1-", "x"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if found := ends(text); len(found) > 2 {
			t.Errorf("ends(%q): %v", text, found)
		}
	})
}

// What a tenant writes: a refusal, or a patch that the API server can apply. It never
// takes the webhook down.
func FuzzTenantNetwork(f *testing.F) {
	f.Add(`{"metadata": {"name": "a"}, "spec": {"NetworkID": "a", "Options": {"vlan": 5}}}`)
	f.Add(`{"metadata": {"annotations": null}, "spec": {"Options": null}}`)
	f.Add(`{"metadata": 1}`)
	f.Add(`[]`)
	f.Fuzz(func(t *testing.T, text string) {
		r := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
			Namespace: "ns", Operation: admissionv1.Create, Object: runtime.RawExtension{Raw: []byte(text)},
			Kind: metav1.GroupVersionKind{Group: "danm.io", Version: "v1", Kind: v1.KindTenantNetwork},
		}}
		obj, err := decodeTenantNetwork(r, r.Object.Raw)
		if err != nil || obj == nil {
			return
		}
		if tenant.Unset(&obj.Spec) != nil || precheck(obj) != nil {
			return
		}
		setAssigned(obj, "vlan/ens4/5 0123456789abcdef")
		answer := patched(r.Object.Raw, obj)
		if answer.Allowed && json.Valid(r.Object.Raw) && len(answer.Patches) == 0 {
			t.Errorf("%s: let in, and nothing was assigned", text)
		}
	})
}
