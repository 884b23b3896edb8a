// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"encoding/json"
	"net/http"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/internal/tenant"
)

// A node writes its entry in status.ipam.held: any content must be cheap to read.
func FuzzFirstAndLast(f *testing.F) {
	for _, seed := range []string{"10.0.0.5-10.0.0.9,10.0.0.12", "fd00::-fdff::", "-", ",", "10.0.0.1-", "x"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if found := firstAndLast(text); len(found) > 2 {
			t.Errorf("firstAndLast(%q): %v", text, found)
		}
	})
}

// Any text of a tenant is rejected, or answered with a patch that the API server can apply. It
// never makes the webhook panic.
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
		if tenant.CheckIDsUnset(&obj.Spec) != nil || wrong(obj) {
			return
		}
		setAssignmentAnnotation(obj, "vlan/ens4/5 0123456789abcdef")
		answer := patchResponse(r.Object.Raw, obj)
		if answer.Allowed && json.Valid(r.Object.Raw) && len(answer.Patches) == 0 {
			t.Errorf("%s: admitted without an assignment", text)
		}
	})
}

func wrong(obj *v1.TenantNetwork) bool {
	_, err := validateUnassigned(obj)
	return err != nil
}

// Any text of a user, in each kind that admission checks, is admitted or rejected as the user's
// mistake. A server error would be answered with 500.
func FuzzAdmission(f *testing.F) {
	kinds := []string{v1.KindClusterNetwork, v1.KindTenantNetwork, v1.KindDanmNet, "TenantConfig", "Pod", "Service", "Deployment", kindCronJob}
	for _, seed := range []string{
		`{"metadata": {"name": "a"}, "spec": {"NetworkID": "a", "Options": {"host_device": "ens4", "cidr": "10.0.0.0/24", "routes": {"10.1.0.0/16": "10.0.0.1"}}}}`,
		`{"hostDevices": [{"name": "ens4", "vniType": "vlan", "vniRange": "1-4094"}]}`,
		`{"metadata": {"annotations": {"danm.io/interfaces": "[{\"network\": \"a\", \"ip\": \"dynamic\"}]"}}}`,
		`{"metadata": {"annotations": {"danm.io/interfaces": "[{\"clusterNetwork\": \"fast\"}, {\"clusterNetwork\": \"some\"}]"}}, "spec": {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{}, {"matchFields": null}]}}}, "initContainers": [{"restartPolicy": "Always", "resources": {"limits": {"a.b/fast": "1e99"}}}], "containers": [{"resources": {"requests": {"a.b/fast": -1}}}]}}`,
		`{"spec": {"template": {"metadata": {"annotations": {"danm.io/interfaces": "[{\"network\": \"a\"}]", "danm.io/x": ""}}, "spec": {"hostNetwork": true}}}}`,
		`{"spec": {"jobTemplate": {"spec": {"template": {"metadata": {"annotations": {"danm.io/interfaces": "["}}}}}}}`,
		`{"metadata": {"annotations": {"danm.io/selector": "{\"a\": \"b\"}", "danm.io/network": "a"}}, "spec": {"selector": {"a": "b"}}}`,
		`{"spec": {"Options": {"vlan": "5"}}}`, `{"spec": []}`, `{"metadata": {"creationTimestamp": 5}}`, `null`, `5`, `[]`,
	} {
		for i := range kinds {
			f.Add(i, seed)
		}
	}
	f.Fuzz(func(t *testing.T, kind int, text string) {
		if kind < 0 || kind >= len(kinds) || !json.Valid([]byte(text)) {
			return
		}
		r := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
			Namespace: "ns", Operation: admissionv1.Create, Object: runtime.RawExtension{Raw: []byte(text)},
			Kind: metav1.GroupVersionKind{Group: "danm.io", Version: "v1", Kind: kinds[kind]},
		}}
		if got := handleAlone(r); !got.Allowed && got.Result.Code != http.StatusUnprocessableEntity {
			t.Errorf("%s %s: %+v", kinds[kind], text, got.Result)
		}
	})
}

func noNetworks() network.PodChecker {
	return network.PodChecker{NetworkOf: func(network.Ref) *network.Network { return nil }}
}

// handleAlone returns the answer as far as the object alone decides it.
func handleAlone(r admission.Request) admission.Response {
	// A canceled context ends the wait for missing networks.
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	switch r.Kind.Kind {
	case "Service":
		return serviceValidator{}.Handle(ctx, r)
	case "Pod":
		if mutated := mutator().Handle(ctx, r); !mutated.Allowed || len(mutated.Patch) > 0 && !json.Valid(mutated.Patch) {
			return mutated
		}
		return (&podValidator{checker: noNetworks()}).Handle(ctx, r)
	case "Deployment", kindCronJob:
		return (&workloadValidator{checker: noNetworks()}).Handle(ctx, r)
	case "TenantConfig":
		var config v1.TenantConfig
		if err := decodeJSON(r.Object.Raw, &config); err != nil {
			return responseFor(err)
		}
		_, err := network.FromTenantConfig(&config)
		return responseFor(err)
	}
	obj, err := decodeNetwork(r, r.Object.Raw)
	if err == nil {
		_, err = network.FromObject(obj)
	}
	return responseFor(err)
}
