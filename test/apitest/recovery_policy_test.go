// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package apitest_test

import (
	"context"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network/networktest"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

// Each value of the annotation danm.io/recovering costs every node a read: who may change a
// network may not have nodes read without end.
func TestOnlyTheControllerMarksRecoveries(t *testing.T) {
	t.Parallel()
	type write = func(ctx context.Context, c client.Client, o *unstructured.Unstructured) error
	patch := func(text string) write {
		return func(ctx context.Context, c client.Client, o *unstructured.Unstructured) error {
			return c.Patch(ctx, o, mergePatch(text), client.DryRunAll)
		}
	}
	cases := map[string]struct {
		reason  string
		marked  bool
		write   write
		refused bool
	}{
		"Set":    {reason: "All nodes read it.", write: patch(`{"metadata": {"annotations": {"danm.io/recovering": "x"}}}`), refused: true},
		"Change": {reason: "All nodes read it once more.", marked: true, write: patch(`{"metadata": {"annotations": {"danm.io/recovering": "x"}}}`), refused: true},
		"Remove": {reason: "The controller puts it back, and all nodes read it.", marked: true, write: patch(`{"metadata": {"annotations": null}}`), refused: true},
		"Other":  {reason: "Other annotations are theirs.", marked: true, write: patch(`{"metadata": {"annotations": {"a": "b"}}}`)},
		"None":   {reason: "A network without annotations.", write: patch(`{"metadata": {"labels": {"a": "b"}}}`)},
		"Apply": {reason: "Who applies a network knows nothing of it.", marked: true, write: func(ctx context.Context, c client.Client, o *unstructured.Unstructured) error {
			return c.Apply(ctx, client.ApplyConfigurationFromUnstructured(applied(o)), client.FieldOwner("me"), client.ForceOwnership, client.DryRunAll)
		}},
		"Create": {reason: "A copy of a network that recovers.", refused: true, write: func(ctx context.Context, c client.Client, o *unstructured.Unstructured) error {
			fresh := newNetwork(t, o.GetKind(), `{}`)
			fresh.SetAnnotations(map[string]string{v1.RecoveringAnnotation: "x"})
			return c.Create(ctx, fresh, client.DryRunAll)
		}},
	}
	atEachVersion(t, func(t *testing.T, env *apitest.Env) {
		t.Helper()
		somebody := netadmin(t, env, "rita")
		for _, kind := range (networktest.RuleCase{}).ApplicableKinds() {
			for name, tc := range cases {
				t.Run(name+"/"+kind, func(t *testing.T) {
					t.Parallel()
					o := newNetwork(t, kind, `{}`)
					if tc.marked {
						o.SetAnnotations(map[string]string{v1.RecoveringAnnotation: "2026-01-01T00:00:00Z"})
					}
					if err := env.Client.Create(t.Context(), o); err != nil {
						t.Fatal(err)
					}
					if err := tc.write(t.Context(), env.As(t, apitest.Controller()), o.DeepCopy()); err != nil && !apierrors.IsForbidden(err) {
						t.Errorf("%s\nthe controller: %v", tc.reason, err)
					}
					err := tc.write(t.Context(), somebody, o)
					if tc.refused != apierrors.IsInvalid(err) || !tc.refused && err != nil || tc.refused && !strings.Contains(err.Error(), "only the controller sets it") {
						t.Errorf("%s\ngot %v, refused: %t", tc.reason, err, tc.refused)
					}
				})
			}
		}
	})
}
