// SPDX-License-Identifier: Apache-2.0

package works

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
)

// deleted is the metadata of an object that is being deleted, with a grace period that ends then.
func deleted(meta metav1.ObjectMeta, ends time.Time, grace int64, finalizers ...string) metav1.ObjectMeta {
	meta.DeletionTimestamp, meta.DeletionGracePeriodSeconds, meta.Finalizers = &metav1.Time{Time: ends}, &grace, finalizers
	return meta
}

// (Safety 5) What is under way is no reason for a Warning; what holds a removal is said.
func TestDeletionProgress(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	const foreground, other = metav1.FinalizerDeleteDependents, "example.com/held"
	root := metav1.ObjectMeta{Namespace: "ns", Name: "web", UID: "web"}
	pod := func(meta metav1.ObjectMeta) any { return &corev1.Pod{ObjectMeta: meta} }
	rs := func(meta metav1.ObjectMeta) any { return &metav1.PartialObjectMetadata{ObjectMeta: meta} }
	cases := map[string]struct {
		reason string
		live   metav1.ObjectMeta
		below  []any
		held   string // part of the message; "": it waits
	}{
		"its finalizer":              {"Nobody but its controller can take it off.", deleted(root, now, 0, other), nil, "its finalizers hold it: " + other + ". "},
		"its finalizer, and Pods":    {"It is named also while Pods end.", deleted(root, now, 0, foreground, other), []any{pod(child("p", "web"))}, "its finalizers hold it: " + other + ". "},
		"Pods in their grace":        {"They end by themselves.", deleted(root, now.Add(-59*time.Second), 0, foreground), []any{pod(deleted(child("p", "web"), now.Add(time.Minute), 119))}, ""},
		"Pods in their grace, long":  {"A person wants to know.", deleted(root, now.Add(-time.Minute), 0, foreground), []any{pod(deleted(child("p", "web"), now.Add(time.Minute), 120))}, "waits for its Pods to end"},
		"Pods that nobody deletes":   {"The garbage collector is about to.", deleted(root, now, 0, foreground), []any{pod(child("p", "web"))}, ""},
		"nothing is left":            {"The garbage collector is about to see that.", deleted(root, now, 0, foreground), nil, ""},
		"nothing is left, long":      {"The garbage collector does not run.", deleted(root, now.Add(-time.Minute), 0, foreground), nil, "Make sure that kube-controller-manager runs"},
		"a Pod's finalizer":          {"Its containers have ended.", deleted(root, now, 0, foreground), []any{pod(deleted(child("p", "web"), now, 0, other))}, "waits for pods ns/p, which its finalizers hold: " + other},
		"a Pod's finalizer, overdue": {"Its node is dead.", deleted(root, now, 0, foreground), []any{pod(deleted(child("p", "web"), now, 30, other))}, "waits for pods ns/p, which its finalizers hold: " + other},
		"a Pod's finalizer, early":   {"Its containers run still: nothing else holds it yet.", deleted(root, now, 0, foreground), []any{pod(deleted(child("p", "web"), now.Add(time.Second), 30, other))}, ""},
		"the Job controller's":       {"It is taken off when the Job controller has counted the Pod.", deleted(root, now, 0, foreground), []any{pod(deleted(child("p", "web"), now, 0, "batch.kubernetes.io/job-tracking"))}, ""},
		"a ReplicaSet's finalizer": {
			"What stands between is held.", deleted(root, now, 0, foreground),
			[]any{rs(deleted(child("r", "web"), now, 0, foreground, other)), pod(child("p", "r"))}, "waits for replicasets ns/r, which its finalizers hold: " + other,
		},
		"a Pod below, held":          {"However deep.", deleted(root, now, 0, foreground), []any{rs(child("r", "web")), pod(deleted(child("p", "r"), now, 0, other))}, "waits for pods ns/p, "},
		"a Pod":                      {"It is in its grace period.", deleted(root, now.Add(600*time.Second), 600), nil, ""},
		"a Pod that is late":         {"Its node may be slow.", deleted(root, now.Add(-29*time.Second), 30), nil, ""},
		"a Pod that does not end":    {"Its node is dead.", deleted(root, now.Add(-30*time.Second), 30), nil, "its grace period ended at 2025-12-31T23:59:30Z, and it is still there. Check its node"},
		"a Pod with finalizers":      {"Its containers run still.", deleted(root, now.Add(time.Second), 30, other), nil, ""},
		"a Pod of which is the rest": {"Its containers have ended.", deleted(root, now, 0, other), nil, "its finalizers hold it: " + other},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := emptyPods()
			for _, o := range tc.below {
				into, slim := p.pods, toolscache.TransformFunc(trimPod)
				if _, ok := o.(*corev1.Pod); !ok {
					into, slim = p.owners[0], trimMetadata
				}
				less, err := slim(o) // as the agent's caches have it
				if err == nil {
					err = into.Add(less)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			live := &unstructured.Unstructured{Object: map[string]any{}}
			live.SetNamespace("ns")
			live.SetName("web")
			live.SetUID("web")
			live.SetFinalizers(tc.live.Finalizers)
			live.SetDeletionTimestamp(tc.live.DeletionTimestamp)
			live.SetDeletionGracePeriodSeconds(tc.live.DeletionGracePeriodSeconds)
			at := deletionProgress(desiredObject{object: live}, live, p, now)
			if at.done || (tc.held == "") != (at.blocked == "") || (at.blocked == "") != (at.pending != "") || !strings.Contains(at.blocked, tc.held) {
				t.Errorf("%s\ngot %+v, want that it is held: %q", tc.reason, at, tc.held)
			}
		})
	}
}

func emptyPods() *podIndex {
	index := func() toolscache.Indexer {
		return toolscache.NewIndexer(toolscache.MetaNamespaceKeyFunc, toolscache.Indexers{ownerUIDIndex: indexByOwnerUID})
	}
	return &podIndex{pods: index(), owners: []toolscache.Indexer{index(), index()}}
}

// (Safety 5) An object that somebody has deleted in the background is removed when its Pods are.
func TestPodsProgress(t *testing.T) {
	t.Parallel()
	now := time.Now()
	a := &objectApplier{pods: emptyPods()}
	o := desiredObject{object: &unstructured.Unstructured{Object: map[string]any{}}}
	pod := &corev1.Pod{ObjectMeta: child("p", "web")}
	if err := a.pods.pods.Add(pod); err != nil {
		t.Fatal(err)
	}
	if at := a.podsProgress(o, "web", now); at.done || at.blocked != "" || at.pending == "" {
		t.Errorf("with a Pod: got %+v, want that it waits", at)
	}
	if at := a.podsProgress(o, "web", now.Add(podsEndTimeout)); at.done || at.blocked == "" {
		t.Errorf("with a Pod, after %s: got %+v, want that it is held", podsEndTimeout, at)
	}
	for _, uid := range []types.UID{"", "other"} {
		if at := a.podsProgress(o, uid, now); !at.done {
			t.Errorf("UID %q: got %+v, want that it is done", uid, at)
		}
	}
	if err := a.pods.pods.Delete(pod); err != nil {
		t.Fatal(err)
	}
	if at := a.podsProgress(o, "web", now); !at.done {
		t.Errorf("without a Pod: got %+v, want that it is done", at)
	}
}

// Kubernetes' own kinds that make Pods are gone when their Pods are.
func TestMakesPods(t *testing.T) {
	t.Parallel()
	for resource, want := range map[string]bool{
		"deployments.apps": true, "statefulsets.apps": true, "daemonsets.apps": true, "replicasets.apps": true,
		"jobs.batch": true, "cronjobs.batch": true, "replicationcontrollers": true,
		"pods": false, "configmaps": false, "persistentvolumeclaims": false, "widgets.example.com": false, "deployments.example.com": false,
	} {
		if got := makesPods(schema.ParseGroupResource(resource)); got != want {
			t.Errorf("%s: got %t, want %t", resource, got, want)
		}
	}
}
