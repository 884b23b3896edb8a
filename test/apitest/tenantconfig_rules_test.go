// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package apitest_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network/networktest"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

// Package network runs the same cases over its model.
func TestTenantConfigRules(t *testing.T) {
	t.Parallel()
	atEachVersion(t, func(t *testing.T, env *apitest.Env) {
		t.Helper()
		for name, tc := range networktest.TenantConfigRules() {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				checkAnswer(t, tc, env.Client.Create(t.Context(), newTenantConfig(t, tc.Spec), client.DryRunAll))
			})
		}
	})
}

func newTenantConfig(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	if err := yaml.UnmarshalStrict([]byte(text), &o.Object); err != nil {
		t.Fatalf("object of the test: %v\n%s", err, text)
	}
	o.SetGroupVersionKind(v1.SchemeGroupVersion().WithKind("TenantConfig"))
	o.SetName(apitest.Name("tc"))
	return o
}

// DANM's bitmap is refused, because nothing would read it.
func TestTenantConfigAlloc(t *testing.T) {
	t.Parallel()
	env := apitest.Start(t)
	err := env.Client.Create(t.Context(), newTenantConfig(t, `{hostDevices: [{name: ens4, vniType: vlan, vniRange: "5-9", alloc: AQ==}]}`))
	const want = `hostDevices[].alloc of ens4 must be empty, because DANM's bitmap is not supported yet: leave it out. Patchbay counts the IDs of all stored networks as in use`
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %s in it", err, want)
	}
}

// Labels change freely; what tenants get may not become nothing.
func TestTenantConfigMetadata(t *testing.T) {
	t.Parallel()
	atEachVersion(t, func(t *testing.T, env *apitest.Env) {
		t.Helper()
		o := newTenantConfig(t, `{hostDevices: [{name: ens4}]}`)
		if err := env.Client.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		o.SetLabels(map[string]string{"a": "b"})
		if err := env.Client.Update(t.Context(), o); err != nil {
			t.Errorf("set a label: %v", err)
		}
		delete(o.Object, "hostDevices")
		if err := env.Client.Update(t.Context(), o, client.DryRunAll); err == nil {
			t.Error("take the last device out: accepted, want a refusal")
		}
	})
}
