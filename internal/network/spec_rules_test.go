// SPDX-License-Identifier: Apache-2.0

package network_test

import (
	"errors"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/internal/network/networktest"
)

// The API server runs the same cases in test/apitest.
func TestRules(t *testing.T) {
	t.Parallel()
	for name, tc := range networktest.Rules() {
		if tc.SchemaOnly {
			continue
		}
		for _, kind := range tc.ApplicableKinds() {
			t.Run(name+"/"+kind, func(t *testing.T) {
				t.Parallel()
				n, err := network.FromObject(object(t, kind, tc.Spec))
				checkAnswer(t, tc, n, err)
			})
		}
	}
}

func checkAnswer(t *testing.T, tc networktest.RuleCase, n *network.Network, err error) {
	t.Helper()
	if len(tc.Refused) == 0 {
		if err != nil || n == nil {
			t.Errorf("%s\nFromObject: %v", tc.Reason, err)
		}
		return
	}
	if !errors.Is(err, network.ErrInvalid) || n != nil {
		t.Fatalf("%s\nFromObject: got %v, %v, want an error with %q", tc.Reason, n, err, tc.Refused)
	}
	for _, part := range tc.Refused {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%s\nFromObject: got %q, want %q in it", tc.Reason, err, part)
		}
	}
}

// object returns a network of the kind with this spec in YAML.
func object(tb testing.TB, kind, spec string) metav1.Object {
	tb.Helper()
	s := v1.NetworkSpec{NetworkID: "net"}
	if err := yaml.UnmarshalStrict([]byte(spec), &s); err != nil {
		tb.Fatalf("spec of the test: %v\n%s", err, spec)
	}
	if strings.Contains(spec, "NetworkID: null") {
		s.NetworkID = ""
	}
	meta := metav1.ObjectMeta{Namespace: "ns", Name: "net", UID: "uid", Generation: 3}
	switch kind {
	case v1.KindClusterNetwork:
		meta.Namespace = ""
		return &v1.ClusterNetwork{ObjectMeta: meta, Spec: s}
	case v1.KindTenantNetwork:
		return &v1.TenantNetwork{ObjectMeta: meta, Spec: s}
	case v1.KindDanmNet:
		return &v1.DanmNet{ObjectMeta: meta, Spec: s}
	}
	tb.Fatalf("no kind %q", kind)
	return nil
}
