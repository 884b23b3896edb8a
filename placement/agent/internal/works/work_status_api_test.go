// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package works_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/test/placement/bed"
)

// (Safety 8) The agent reports the exact status up to 64 KiB, if it fits beside its manifest. Of a larger one it
// reports conditions and counts, and the Work has at most MaxObjectBytes.
func TestAgentTruncatesStatuses(t *testing.T) {
	t.Parallel()
	b := start(t)
	b.widgets(t)
	const below = v1alpha1.MaxStatusBytes - 512 // the other fields take less
	for name, tc := range map[string]struct {
		reason         string
		manifest, rows int // bytes
		truncated      bool
	}{
		"exact":  {"It is just below the limit.", 0, below, false},
		"large":  {"It is over the limit.", 0, 70 << 10, true},
		"beside": {"It is below the limit, and does not fit beside its manifest.", 191 << 10, below, true},
		"both":   {"It is over the limit, and the manifest is large.", 191 << 10, 70 << 10, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := b.work(t, name, nil, manifest(t, "widgets", fmt.Sprintf(
				`{apiVersion: example.com/v1, kind: Widget, metadata: {name: %s, namespace: default}, spec: {text: %q}}`, name, strings.Repeat("m", tc.manifest))))
			b.awaitWork(t, w, "applied", applied(1))
			o := b.object(t, "example.com/v1", "Widget", "default", name)
			ready := map[string]any{
				"type": "Ready", "status": "True", "reason": "Ready", "message": "all is well", "lastTransitionTime": "2026-01-01T00:00:00Z",
			}
			o.Object["status"] = map[string]any{
				"observedGeneration": int64(1), "replicas": int64(3), "conditions": []any{ready}, "rows": strings.Repeat("r", tc.rows),
			}
			if err := b.Status().Update(t.Context(), o); err != nil {
				t.Fatal(err)
			}
			s := b.awaitWork(t, w, "the status is reported", func(s v1alpha1.WorkStatus) bool {
				return len(s.Manifests) == 1 && s.Manifests[0].Status != nil
			})
			var got struct {
				ObservedGeneration, Replicas int64
				Conditions                   []metav1.Condition
				Rows                         string
			}
			if err := json.Unmarshal(s.Manifests[0].Status.Raw, &got); err != nil {
				t.Fatal(err)
			}
			if s.Manifests[0].Truncated != tc.truncated || (len(got.Rows) != tc.rows) != tc.truncated {
				t.Errorf("%s\ngot truncated %t, %d bytes of rows, want %t", tc.reason, s.Manifests[0].Truncated, len(got.Rows), tc.truncated)
			}
			if got.ObservedGeneration != 1 || got.Replicas != 3 || len(got.Conditions) != 1 || got.Conditions[0].Message != "all is well" {
				t.Errorf("%s\ngot %d, %d replicas, %+v: want the conditions and counts", tc.reason, got.ObservedGeneration, got.Replicas, got.Conditions)
			}
			stored := b.object(t, v1alpha1.SchemeGroupVersion().String(), "Work", clusterNamespace, name)
			if size := len(jsonOf(t, stored)); size > v1alpha1.MaxObjectBytes {
				t.Errorf("%s\nthe Work has %d bytes, want at most %d", tc.reason, size, v1alpha1.MaxObjectBytes)
			}
		})
	}
}

// widgets creates a CRD with a status, and lets the agent create objects of its kind.
func (b *testAgent) widgets(t *testing.T) {
	t.Helper()
	crd := &unstructured.Unstructured{}
	if err := crd.UnmarshalJSON([]byte(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"widgets.example.com"},"spec":{
		"group":"example.com","scope":"Namespaced","names":{"kind":"Widget","plural":"widgets"},"versions":[
		{"name":"v1","served":true,"storage":true,"subresources":{"status":{}},"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}]}}`)); err != nil {
		t.Fatal(err)
	}
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "widgets", Labels: map[string]string{"placement.patchbay.io/aggregate-to-agent": "true"}},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{"example.com"}, Resources: []string{"widgets"}, Verbs: []string{"*"}}},
	}
	if err := errors.Join(b.Create(t.Context(), crd), b.Create(t.Context(), role), bed.AggregateAgentRole(t.Context(), b)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "widgets are served", func() error {
		list := &unstructured.UnstructuredList{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "WidgetList"}}
		return b.List(t.Context(), list, client.InNamespace("default"))
	})
}
