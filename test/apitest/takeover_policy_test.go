// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package apitest_test

import (
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network/networktest"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

// Nothing reads DANM's bitmap and cursor: a live DANM network that is created here would
// give its Pods' addresses to others.
func TestTakeOver(t *testing.T) {
	t.Parallel()
	atEachVersion(t, func(t *testing.T, env *apitest.Env) {
		t.Helper()
		cases := map[string]struct {
			reason, spec, refused string
		}{
			"Alloc":   {reason: "IPv4.", spec: `{Options: {cidr: 10.0.0.0/24, alloc: gAAB}}`, refused: "spec.Options.alloc "},
			"Alloc6":  {reason: "IPv6.", spec: `{Options: {net6: "fd00::/120", alloc6: gAAB}}`, refused: "spec.Options.alloc6 "},
			"LastIP":  {reason: "IPv4.", spec: `{Options: {cidr: 10.0.0.0/24, allocation_pool: {lastIp: 10.0.0.9}}}`, refused: "spec.Options.allocation_pool.lastIp"},
			"LastIP6": {reason: "IPv6.", spec: `{Options: {net6: "fd00::/120", allocation_pool_v6: {lastIp: "fd00::9"}}}`, refused: "spec.Options.allocation_pool_v6.lastIp"},
			"Empty":   {reason: "DANM's clients write empty strings.", spec: `{Options: {alloc: "", alloc6: "", allocation_pool: {lastIp: ""}}}`},
			"None":    {reason: "No options at all.", spec: `{}`},
		}
		for name, tc := range cases {
			for _, kind := range (networktest.RuleCase{}).ApplicableKinds() {
				t.Run(name+"/"+kind, func(t *testing.T) {
					t.Parallel()
					err := env.Client.Create(t.Context(), newNetwork(t, kind, tc.spec), client.DryRunAll)
					if (tc.refused != "") != apierrors.IsInvalid(err) || tc.refused == "" && err != nil {
						t.Fatalf("%s\ncreate: got %v, want a refusal: %v", tc.reason, err, tc.refused != "")
					}
					if err != nil && !strings.Contains(err.Error(), tc.refused) {
						t.Errorf("%s\ncreate: got %q, want it to say %q", tc.reason, err, tc.refused)
					}
					moving := newNetwork(t, kind, tc.spec)
					moving.SetAnnotations(map[string]string{v1.TakeOverAnnotation: "true"})
					if err := env.Client.Create(t.Context(), moving, client.DryRunAll); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), v1.TakeOverAnnotation) {
						t.Errorf("create with %s: got %v, want a refusal that names it", v1.TakeOverAnnotation, err)
					}
					moving.SetAnnotations(map[string]string{v1.TakeOverAnnotation: "false"})
					if err := env.Client.Create(t.Context(), moving, client.DryRunAll); (err != nil) != (tc.refused != "") {
						t.Errorf("create with %s=false: got %v", v1.TakeOverAnnotation, err)
					}
				})
			}
		}
	})
}

// Patchbay reads no bitmap, cursor or take-over that a user adds to a network later.
func TestTakeOverOfStoredNetwork(t *testing.T) {
	t.Parallel()
	atEachVersion(t, func(t *testing.T, env *apitest.Env) {
		t.Helper()
		for _, kind := range (networktest.RuleCase{}).ApplicableKinds() {
			t.Run(kind, func(t *testing.T) {
				t.Parallel()
				stored := newNetwork(t, kind, `{Options: {cidr: 10.0.0.0/24}}`)
				if err := env.Client.Create(t.Context(), stored); err != nil {
					t.Fatal(err)
				}
				for name, tc := range map[string]struct{ reason, patch, refused string }{
					"Alloc":    {reason: "A bitmap is added.", patch: `{"spec": {"Options": {"alloc": "gAAB"}}}`, refused: "spec.Options.alloc "},
					"LastIP":   {reason: "A cursor is added.", patch: `{"spec": {"Options": {"allocation_pool": {"lastIp": "10.0.0.9"}}}}`, refused: "spec.Options.allocation_pool.lastIp"},
					"TakeOver": {reason: "A take-over is requested.", patch: `{"metadata": {"annotations": {"danm.io/take-over": "true"}}}`, refused: v1.TakeOverAnnotation},
					"Other":    {reason: "Another change is none of these.", patch: `{"metadata": {"labels": {"a": "b"}}}`},
				} {
					err := env.Client.Patch(t.Context(), stored.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(tc.patch)), client.DryRunAll)
					switch {
					case tc.refused == "" && err != nil:
						t.Errorf("%s: %s got %v", name, tc.reason, err)
					case tc.refused != "" && (!apierrors.IsInvalid(err) || !strings.Contains(err.Error(), tc.refused)):
						t.Errorf("%s: %s got %v, want a refusal with %q", name, tc.reason, err, tc.refused)
					}
				}
			})
		}
	})
}
