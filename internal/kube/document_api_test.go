// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package kube

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

// A daemon claims while the definition and the controller are of a newer version, whose fields it does not know. The
// policies compare what it may not change with what was stored, so that a write without these fields is rejected. The
// test costs an API server, 10 s of processor time.
func TestStoreKeepsFieldsOfANewerVersion(t *testing.T) {
	t.Parallel()
	env := apitest.New(t)
	addFutureFields(t, env)
	store, cn := NewStore(connect(t, env)), clusterNetwork(t, env)
	stored := newStatus(t, env, cn)

	o, err := store.Get(t.Context(), ref(cn))
	if err != nil {
		t.Fatal(err)
	}
	o.IPAM.V4.Cursor = "10.9.0.3"
	o.IPAM.Held[node] = v1.HeldAddresses{UID: "u", Seq: 2, V4: "10.9.0.1"}
	if o, err = store.Update(t.Context(), o); err != nil {
		t.Fatalf("claim: %v", err)
	}
	if _, err := store.Protect(t.Context(), o, true); err != nil {
		t.Fatalf("protect: %v", err)
	}
	if err := unstructured.SetNestedField(stored, "10.9.0.3", "ipam", "v4", "cursor"); err != nil {
		t.Fatal(err)
	}
	if err := unstructured.SetNestedField(stored, int64(2), "ipam", "held", node, "seq"); err != nil {
		t.Fatal(err)
	}
	got := networkDocument(t, env, cn)
	if diff := cmp.Diff(stored, got.UnstructuredContent()["status"]); diff != "" {
		t.Errorf("status after a claim (-want +got):\n%s", diff)
	}

	// A condition of the daemon's own, beside one of the controller.
	status := NetworkStatusOf(got.Object).DeepCopy()
	meta.SetStatusCondition(&status.Conditions, metav1.Condition{Type: v1.ConditionReady, Status: metav1.ConditionFalse, Reason: v1.ReasonNetworkInvalid, Message: "m"})
	read, err := GetNetwork(t.Context(), connect(t, env), ref(cn))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := read.UpdateStatus(t.Context(), connect(t, env), status); err != nil {
		t.Fatalf("set a condition: %v", err)
	}
	conditions, _, err := unstructured.NestedSlice(networkDocument(t, env, cn).UnstructuredContent(), "status", "conditions")
	if err != nil || len(conditions) != 2 || future(conditions[0]) != "condition" {
		t.Errorf("got conditions %v and error %v, want the controller's with its new field, and Ready", conditions, err)
	}
}

// future returns the field that this version does not know.
func future(entry any) any {
	fields, _ := entry.(map[string]any)
	return fields["future"]
}

// networkDocument reads a network as an administrator.
func networkDocument(t *testing.T, env *apitest.Env, cn *v1.ClusterNetwork) *NetworkDocument {
	t.Helper()
	d, err := GetNetwork(t.Context(), env.Client, ref(cn))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// addFutureFields adds a field "future" to each level of the status in the definition of ClusterNetworks.
func addFutureFields(t *testing.T, env *apitest.Env) {
	t.Helper()
	crd := &unstructured.Unstructured{}
	crd.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
	if err := env.Client.Get(t.Context(), client.ObjectKey{Name: "clusternetworks.danm.io"}, crd); err != nil {
		t.Fatal(err)
	}
	versions, _, err := unstructured.NestedSlice(crd.Object, "spec", "versions")
	if err != nil {
		t.Fatal(err)
	}
	version, _ := versions[0].(map[string]any)
	for _, path := range [][]string{
		{}, {"pools", "items"}, {"conditions", "items"},
		{"ipam"}, {"ipam", "properties", "v4"}, {"ipam", "properties", "held", "additionalProperties"},
	} {
		full := []string{"schema", "openAPIV3Schema", "properties", "status", "properties"}
		if len(path) > 0 {
			full = append(append(full, path...), "properties")
		}
		if err := unstructured.SetNestedMap(version, map[string]any{"type": "string"}, append(full, "future")...); err != nil {
			t.Fatalf("%v: %v", path, err)
		}
	}
	if err := unstructured.SetNestedSlice(crd.Object, versions, "spec", "versions"); err != nil {
		t.Fatal(err)
	}
	if err := env.Client.Update(t.Context(), crd); err != nil {
		t.Fatal(err)
	}
}

// newStatus writes a status of the newer version and returns it as stored. The API server drops the fields until it
// serves the new definition.
func newStatus(t *testing.T, env *apitest.Env, cn *v1.ClusterNetwork) map[string]any {
	t.Helper()
	want := map[string]any{
		"future": "status",
		"conditions": []any{map[string]any{"type": "Future", "status": "True", "reason": "Test", "message": "m",
			"lastTransitionTime": "2026-01-02T15:04:05Z", "future": "condition"}},
		"pools": []any{map[string]any{"family": "IPv4", "capacity": int64(254), "inUse": int64(1), "warm": int64(0), "cooldown": int64(0),
			"reserved": int64(0), "free": int64(253), "future": "pool"}},
		"ipam": map[string]any{
			"future": "ipam",
			"v4":     map[string]any{"cidr": "10.9.0.0/24", "cursor": "10.9.0.2", "allocated": int64(1), "pages": map[string]any{"0": "Ag=="}, "future": "bitmap"},
			"held": map[string]any{
				node:    map[string]any{"uid": "u", "seq": int64(1), "v4": "10.9.0.1", "future": "own"},
				"other": map[string]any{"uid": "v", "seq": int64(1), "future": "other"},
			},
		},
	}
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		d, err := GetNetwork(ctx, env.Client, ref(cn))
		if err != nil {
			return false, fmt.Errorf("read the network: %w", err)
		}
		next := &unstructured.Unstructured{Object: d.UnstructuredContent()}
		next.Object["status"] = want
		last = env.Client.Status().Update(ctx, next)
		if diff := cmp.Diff(want, next.Object["status"]); last == nil && diff != "" {
			last = errors.New(diff)
		}
		return last == nil, nil
	})
	if err != nil {
		t.Fatalf("write a status of a newer version: %v: %v", err, last)
	}
	return want
}
