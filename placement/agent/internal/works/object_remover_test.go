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

	"github.com/patchbay-cni/patchbay/placement/agent/internal/informers"

	"github.com/patchbay-cni/patchbay/placement/agent/internal/podindex"
)

// deleted returns the metadata of an object that is being deleted, with a grace period that ends at a time.
func deleted(meta metav1.ObjectMeta, ends time.Time, grace int64, finalizers ...string) metav1.ObjectMeta {
	meta.DeletionTimestamp, meta.DeletionGracePeriodSeconds, meta.Finalizers = &metav1.Time{Time: ends}, &grace, finalizers
	return meta
}

// (Safety 5) A removal in progress is no reason for a Warning, and what blocks a removal is reported.
func TestDeletionProgress(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	const foreground, other = metav1.FinalizerDeleteDependents, "example.com/held"
	root := metav1.ObjectMeta{Namespace: "ns", Name: "web", UID: "web"}
	pod := func(meta metav1.ObjectMeta) any { return &corev1.Pod{ObjectMeta: meta} }
	rs := func(meta metav1.ObjectMeta) any { return &metav1.PartialObjectMetadata{ObjectMeta: meta} }
	cases := map[string]struct {
		reason  string
		live    metav1.ObjectMeta
		below   []any
		blocked string // part of the message; "" for a removal in progress
	}{
		"its finalizer":              {"Only its controller can remove the finalizer.", deleted(root, now, 0, other), nil, "its finalizers block the deletion: " + other + ". "},
		"its finalizer, and Pods":    {"The finalizer is reported also while Pods end.", deleted(root, now, 0, foreground, other), []any{pod(child("p", "web"))}, "its finalizers block the deletion: " + other + ". "},
		"Pods in their grace":        {"The Pods end without a user.", deleted(root, now.Add(-59*time.Second), 0, foreground), []any{pod(deleted(child("p", "web"), now.Add(time.Minute), 119))}, ""},
		"Pods in their grace, long":  {"A user must know about a long wait.", deleted(root, now.Add(-time.Minute), 0, foreground), []any{pod(deleted(child("p", "web"), now.Add(time.Minute), 120))}, "waits for its Pods to end"},
		"Pods not deleted yet":       {"The garbage collector is about to delete them.", deleted(root, now, 0, foreground), []any{pod(child("p", "web"))}, ""},
		"nothing is left":            {"The garbage collector is about to finish.", deleted(root, now, 0, foreground), nil, ""},
		"nothing is left, long":      {"The garbage collector does not run.", deleted(root, now.Add(-time.Minute), 0, foreground), nil, "Make sure that kube-controller-manager runs"},
		"a Pod's finalizer":          {"Its containers have ended.", deleted(root, now, 0, foreground), []any{pod(deleted(child("p", "web"), now, 0, other))}, "waits for pods ns/p, which its finalizers block: " + other},
		"a Pod's finalizer, overdue": {"Its node is dead.", deleted(root, now, 0, foreground), []any{pod(deleted(child("p", "web"), now, 30, other))}, "waits for pods ns/p, which its finalizers block: " + other},
		"a Pod's finalizer, early":   {"Its containers still run, so the finalizer does not block yet.", deleted(root, now, 0, foreground), []any{pod(deleted(child("p", "web"), now.Add(time.Second), 30, other))}, ""},
		"the Job controller's":       {"The Job controller removes it after it has counted the Pod.", deleted(root, now, 0, foreground), []any{pod(deleted(child("p", "web"), now, 0, "batch.kubernetes.io/job-tracking"))}, ""},
		"a ReplicaSet's finalizer": {
			"An owner between workload and Pods may be blocked.", deleted(root, now, 0, foreground),
			[]any{rs(deleted(child("r", "web"), now, 0, foreground, other)), pod(child("p", "r"))}, "waits for replicasets ns/r, which its finalizers block: " + other,
		},
		"a Pod below, blocked":       {"A Pod may be several levels below.", deleted(root, now, 0, foreground), []any{rs(child("r", "web")), pod(deleted(child("p", "r"), now, 0, other))}, "waits for pods ns/p, "},
		"a Pod":                      {"The Pod is in its grace period.", deleted(root, now.Add(600*time.Second), 600), nil, ""},
		"a Pod that is late":         {"Its node may be slow.", deleted(root, now.Add(-29*time.Second), 30), nil, ""},
		"a Pod that does not end":    {"Its node is dead.", deleted(root, now.Add(-30*time.Second), 30), nil, "its grace period ended at 2025-12-31T23:59:30Z, and the Pod still exists. Check its node"},
		"a Pod with finalizers":      {"Its containers still run.", deleted(root, now.Add(time.Second), 30, other), nil, ""},
		"a Pod after its containers": {"Its containers have ended.", deleted(root, now, 0, other), nil, "its finalizers block the deletion: " + other},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := emptyPods()
			for _, o := range tc.below {
				index, trim := p.Pods, toolscache.TransformFunc(podindex.TrimPod)
				if _, ok := o.(*corev1.Pod); !ok {
					index, trim = p.Owners[0], informers.TrimMetadata
				}
				trimmed, err := trim(o) // as in the agent's caches
				if err == nil {
					err = index.Add(trimmed)
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
			if at.done || (tc.blocked == "") != (at.blocked == "") || (at.blocked == "") != (at.pending != "") || !strings.Contains(at.blocked, tc.blocked) {
				t.Errorf("%s\ngot %+v, want blocked: %q", tc.reason, at, tc.blocked)
			}
		})
	}
}

func child(name, owner string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name), OwnerReferences: []metav1.OwnerReference{
		{Name: owner, UID: types.UID(owner), Controller: new(true)},
	}}
}

func emptyPods() *podindex.Index {
	index := func() toolscache.Indexer {
		return toolscache.NewIndexer(toolscache.MetaNamespaceKeyFunc, podindex.Indexers())
	}
	return &podindex.Index{Pods: index(), Owners: []toolscache.Indexer{index(), index()}}
}

// (Safety 5) An object that a user has deleted in the background counts as removed after its Pods.
func TestPodsProgress(t *testing.T) {
	t.Parallel()
	now := time.Now()
	r := &objectRemover{pods: emptyPods()}
	o := desiredObject{object: &unstructured.Unstructured{Object: map[string]any{}}}
	pod := &corev1.Pod{ObjectMeta: child("p", "web")}
	if err := r.pods.Pods.Add(pod); err != nil {
		t.Fatal(err)
	}
	if at := r.podsProgress(o, "web", now); at.done || at.blocked != "" || at.pending == "" {
		t.Errorf("with a Pod: got %+v, want that it is pending", at)
	}
	if at := r.podsProgress(o, "web", now.Add(podsEndTimeout)); at.done || at.blocked == "" {
		t.Errorf("with a Pod, after %s: got %+v, want that it is blocked", podsEndTimeout, at)
	}
	for _, uid := range []types.UID{"", "other"} {
		if at := r.podsProgress(o, uid, now); !at.done {
			t.Errorf("UID %q: got %+v, want that it is done", uid, at)
		}
	}
	if err := r.pods.Pods.Delete(pod); err != nil {
		t.Fatal(err)
	}
	if at := r.podsProgress(o, "web", now); !at.done {
		t.Errorf("without a Pod: got %+v, want that it is done", at)
	}
}

// Kubernetes' own kinds that create Pods are deleted in the foreground.
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
