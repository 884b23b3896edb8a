// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package apitest_test

import (
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	v1 "github.com/patchbay-cni/patchbay/api/v1"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

// ruleCase is a network spec and what the API server says to it.
type ruleCase struct {
	reason string
	// spec is in YAML. NetworkID is added when it is left out.
	spec string
	// refused are parts of the message: the field's path and what would be right.
	// None means accepted.
	refused []string
	// kinds it is tried on; all three network kinds by default.
	kinds []string
}

func networkKinds() []string {
	return []string{v1.KindClusterNetwork, v1.KindDanmNet, v1.KindTenantNetwork}
}

// runRules tries every case on every kind. Nothing is stored.
func runRules(t *testing.T, cases map[string]ruleCase) {
	t.Helper()
	env := apitest.Start(t)
	for name, tc := range cases {
		kinds := tc.kinds
		if kinds == nil {
			kinds = networkKinds()
		}
		for _, kind := range kinds {
			t.Run(name+"/"+kind, func(t *testing.T) {
				t.Parallel()
				err := env.Client.Create(t.Context(), newNetwork(t, kind, tc.spec), client.DryRunAll)
				checkAnswer(t, tc, err)
			})
		}
	}
}

func checkAnswer(t *testing.T, tc ruleCase, err error) {
	t.Helper()
	if len(tc.refused) == 0 {
		if err != nil {
			t.Errorf("%s\ncreate: %v", tc.reason, err)
		}
		return
	}
	if !apierrors.IsInvalid(err) {
		t.Fatalf("%s\ncreate: got %v, want a refusal that says %q", tc.reason, err, tc.refused)
	}
	for _, part := range tc.refused {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%s\ncreate: got %q, want it to say %q", tc.reason, err, part)
		}
	}
}

// newNetwork returns a network with this spec; a namespaced one is in "default".
func newNetwork(t *testing.T, kind, spec string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	fields := map[string]any{}
	if err := yaml.UnmarshalStrict([]byte(spec), &fields); err != nil {
		t.Fatalf("spec of the test: %v\n%s", err, spec)
	}
	if _, named := fields["NetworkID"]; !named {
		fields["NetworkID"] = "net"
	}
	o.Object = map[string]any{"spec": fields}
	o.SetGroupVersionKind(v1.SchemeGroupVersion().WithKind(kind))
	o.SetName(apitest.Name("net"))
	if kind != v1.KindClusterNetwork {
		o.SetNamespace("default")
	}
	return o
}
