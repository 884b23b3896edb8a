// SPDX-License-Identifier: Apache-2.0

package works

import (
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/agent/internal/podindex"
	"github.com/patchbay-cni/patchbay/placement/agent/internal/records"
	"github.com/patchbay-cni/patchbay/placement/internal/debugpath"
)

// hubPlaced is what a hub has placed in the namespace web.
func hubPlaced(name string, hub types.UID, uids ...types.UID) *v1alpha1.AppliedWork {
	rec := &v1alpha1.AppliedWork{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.AppliedWorkSpec{Work: v1alpha1.WorkSpec{HubUID: hub}}}
	for _, uid := range uids {
		rec.Status.Objects = append(rec.Status.Objects, v1alpha1.AppliedObject{Namespace: "web", Name: string(uid), UID: uid})
	}
	return rec
}

// owned is the metadata of an object in the namespace web; owner "" is for none.
func owned(name string, owner types.UID) metav1.ObjectMeta {
	m := metav1.ObjectMeta{Namespace: "web", Name: name, UID: types.UID(name)}
	if owner != "" {
		controls := true
		m.OwnerReferences = []metav1.OwnerReference{{Name: string(owner), UID: owner, Controller: &controls}}
	}
	return m
}

// newDebugAccess is for the hub "hub" in a cluster that the hub "other" had before.
func newDebugAccess(t *testing.T, labels, annotations map[string]string) *debugAccess {
	t.Helper()
	scheme, _, err := schemeAndMapper()
	if err != nil {
		t.Fatal(err)
	}
	namespace := func(name string) *corev1.Namespace {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels, Annotations: annotations}}
	}
	local := fake.NewClientBuilder().WithScheme(scheme).WithObjects([]client.Object{
		namespace("web"), namespace("default"), hubPlaced("a", "hub", "deployment", "service"), hubPlaced("b", "other", "before"),
	}...).Build()
	d := &debugAccess{
		records: records.New(local), namespaces: local, readHubUID: func(context.Context) (string, error) { return "hub", nil },
		services: dynamicfake.NewSimpleDynamicClient(scheme,
			&corev1.Service{ObjectMeta: owned("service", "")}, &corev1.Service{ObjectMeta: owned("db", "")},
		).Resource(corev1.SchemeGroupVersion.WithResource("services")),
	}
	if err := d.records.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	index := func(objects ...any) toolscache.Indexer {
		i := toolscache.NewIndexer(toolscache.MetaNamespaceKeyFunc, podindex.Indexers())
		for _, o := range objects {
			if err := i.Add(o); err != nil {
				t.Fatal(err)
			}
		}
		return i
	}
	d.pods = &podindex.Index{
		Pods: index(&corev1.Pod{ObjectMeta: owned("pod", "replicaset")}, &corev1.Pod{ObjectMeta: owned("db", "statefulset")},
			&corev1.Pod{ObjectMeta: owned("old", "before")}),
		Owners: []toolscache.Indexer{index(&metav1.PartialObjectMetadata{ObjectMeta: owned("replicaset", "deployment")}),
			index(&metav1.PartialObjectMetadata{ObjectMeta: owned("statefulset", "")})},
	}
	return d
}

// Users of the hub reach what this hub has placed.
func TestCheckDebug(t *testing.T) {
	t.Parallel()
	create := map[string]string{v1alpha1.AccessLabel: v1alpha1.AccessCreate}
	ownedLabel := map[string]string{v1alpha1.AccessLabel: v1alpha1.AccessOwned}
	cases := map[string]struct {
		reason  string
		labels  map[string]string
		owner   string // hub of the namespace
		request debugpath.Placed
		want    string // part of the error; "" for none
	}{
		"Namespace":      {"objects of the hub are there", create, "", debugpath.Placed{Namespace: "web"}, ""},
		"NotPlaced":      {"none are there", create, "", debugpath.Placed{Namespace: "default"}, "must have an object"},
		"NoNamespace":    {"a request has one", create, "", debugpath.Placed{}, "must have an object"},
		"Closed":         {"the cluster's admin has closed it", nil, "", debugpath.Placed{Namespace: "web"}, "must have the label"},
		"Owned":          {"the agent made it for this hub", ownedLabel, "hub", debugpath.Placed{Namespace: "web"}, ""},
		"OwnedByOther":   {"the agent made it for another hub", ownedLabel, "other", debugpath.Placed{Namespace: "web"}, "must have the label"},
		"Pod":            {"its Deployment is placed", create, "", debugpath.Placed{Namespace: "web", Pod: "pod"}, ""},
		"StrangersPod":   {"a Pod of the cluster's own workloads", create, "", debugpath.Placed{Namespace: "web", Pod: "db"}, "other Pods"},
		"OtherHubsPod":   {"the hub before placed it", create, "", debugpath.Placed{Namespace: "web", Pod: "old"}, "other Pods"},
		"NoPod":          {"it could be one of a stranger", create, "", debugpath.Placed{Namespace: "web", Pod: "new"}, "must exist"},
		"Service":        {"it is placed", create, "", debugpath.Placed{Namespace: "web", Service: "service"}, ""},
		"StrangersPorts": {"a Service of the cluster's own workloads", create, "", debugpath.Placed{Namespace: "web", Service: "db"}, "must be an object"},
		"NoService":      {"there is none", create, "", debugpath.Placed{Namespace: "web", Service: "new"}, "not found"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := newDebugAccess(t, tc.labels, map[string]string{v1alpha1.HubUIDAnnotation: tc.owner}).check(t.Context(), tc.request)
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("%s: got %v, want %q", tc.reason, err, tc.want)
			}
		})
	}
}

// The agent asks its hub who it is, once a minute, and lets no request pass before it knows.
func TestDebugHubUID(t *testing.T) {
	t.Parallel()
	d := newDebugAccess(t, map[string]string{v1alpha1.AccessLabel: v1alpha1.AccessCreate}, nil)
	reads, hub, unreachable := 0, "hub", errors.New("unreachable")
	d.readHubUID = func(context.Context) (string, error) { reads++; return hub, unreachable }
	web := debugpath.Placed{Namespace: "web", Pod: "pod"}
	if err := d.check(t.Context(), web); !errors.Is(err, unreachable) {
		t.Errorf("got %v, want the error", err)
	}
	unreachable = nil
	for range 3 {
		if err := d.check(t.Context(), web); err != nil {
			t.Error(err)
		}
	}
	if reads != 2 {
		t.Errorf("got %d reads, want one after the failure", reads)
	}
	hub, d.readAt = "other", d.readAt.Add(-hubUIDLifetime)
	if err := d.check(t.Context(), web); err == nil {
		t.Error("a Pod of the hub before: want an error")
	}
}
