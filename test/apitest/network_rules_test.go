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

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network/networktest"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

// Package network runs the same cases over its model, so the two cannot disagree.
// Nothing is stored.
func TestNetworkRules(t *testing.T) {
	t.Parallel()
	atEachVersion(t, func(t *testing.T, env *apitest.Env) {
		t.Helper()
		for name, tc := range networktest.Rules() {
			for _, kind := range tc.ApplicableKinds() {
				t.Run(name+"/"+kind, func(t *testing.T) {
					t.Parallel()
					err := env.Client.Create(t.Context(), newNetwork(t, kind, tc.Spec), client.DryRunAll)
					checkAnswer(t, tc, err)
				})
			}
		}
	})
}

func checkAnswer(t *testing.T, tc networktest.RuleCase, err error) {
	t.Helper()
	if len(tc.Refused) == 0 {
		if err != nil {
			t.Errorf("%s\ncreate: %v", tc.Reason, err)
		}
		return
	}
	if !apierrors.IsInvalid(err) {
		t.Fatalf("%s\ncreate: got %v, want a refusal that says %q", tc.Reason, err, tc.Refused)
	}
	for _, part := range tc.Refused {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%s\ncreate: got %q, want it to say %q", tc.Reason, err, part)
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
