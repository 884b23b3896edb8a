// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/clusters"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/kinds"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/limits"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/scope"
)

// dependentReads is how many reads of the cache may show the dependent or its Assignment in one
// reconciliation, at most.
const dependentReads = 6

// (Safety 1) A dependency stays in a cluster where a dependent needs it, whatever the caches show of the
// dependent: its Assignment may be deleted and created again between any two reads, and the cache of its
// kind may be behind. The hub may find that its view is stale, but not when the caches show all.
func TestDependencyStaysInAnyViewOfTheCache(t *testing.T) {
	t.Parallel()
	active, draining := v1alpha1.TargetActive, v1alpha1.TargetDraining
	for name, tc := range map[string]dependencyCase{
		"follows":  {reason: "Only the dependent has placed it.", source: "dependency", targets: targets("east", active)},
		"moves":    {reason: "A dependent in another cluster needs it, too.", source: "dependency", targets: targets("east", active), elsewhere: true},
		"annotate": {reason: "Its annotation names another cluster.", source: "annotation", annotation: new("west"), targets: targets("east", active, "west", active)},
		"nowhere":  {reason: "Its annotation names no cluster.", source: "annotation", annotation: new(""), targets: targets("east", active)},
		"returns":  {reason: "The dependent has come back before it has left.", source: "dependency", targets: targets("east", draining, "west", active), elsewhere: true},
		"mistake":  {reason: "Its annotation is invalid since it has begun to leave.", source: "dependency", annotation: new("West!"), targets: targets("east", draining, "west", active)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newDependencyHub(t, tc, true)
			for views := range uint(1) << dependentReads {
				p, err := h.plan(t, views)
				if h.reads > dependentReads {
					t.Fatalf("got %d reads, want at most dependentReads", h.reads)
				}
				if errors.Is(err, scope.ErrStale) && views != 0 {
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				if got, ok := limits.TargetOf(p.next.Spec.Targets, "east"); !ok || got.State != active && got.State != tc.targets[0].State {
					t.Errorf("%s\nwith the views %06b of the dependent: got %+v, want the target east to stay", tc.reason, views, p.next.Spec.Targets)
				}
			}
		})
	}
}

// A dependency leaves when no object needs it.
func TestDependencyLeavesAfterItsDependent(t *testing.T) {
	t.Parallel()
	h := newDependencyHub(t, dependencyCase{source: "dependency", targets: targets("east", v1alpha1.TargetActive)}, false)
	p, err := h.plan(t, 0)
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := limits.TargetOf(p.next.Spec.Targets, "east"); got.State != v1alpha1.TargetRemoving {
		t.Errorf("got %+v, want the target east to be Removing", p.next.Spec.Targets)
	}
}

// dependencyCase is the stored state of a ConfigMap that a Deployment in the cluster east names.
type dependencyCase struct {
	reason     string
	source     string // of the ConfigMap's last decision
	annotation *string
	targets    []v1alpha1.Target // of the ConfigMap
	elsewhere  bool              // another Deployment in the cluster west names it
}

func targets(namesAndStates ...any) (list []v1alpha1.Target) {
	for pair := range slices.Chunk(namesAndStates, 2) {
		name, _ := pair[0].(string)
		state, _ := pair[1].(v1alpha1.TargetState)
		list = append(list, v1alpha1.Target{Cluster: v1alpha1.ClusterName(name), State: state})
	}
	return list
}

// dependencyHub plans the placement of a ConfigMap with a cache whose reads may differ.
type dependencyHub struct {
	cache.Cache
	stored  client.Client
	builder *fake.ClientBuilder
	reader  *scope.Reader
	kinds   kinds.Registry
	views   uint // a bit for each read: whether the cache lacks what the read may show of the dependent
	reads   int
}

var (
	dependencyKey = kinds.Key{GroupKind: schema.GroupKind{Kind: "ConfigMap"}, Namespace: "shop", Name: "config"}
	dependentKey  = kinds.Key{GroupKind: schema.GroupKind{Group: "apps", Kind: "Deployment"}, Namespace: "shop", Name: "web"}
	elsewhereKey  = kinds.Key{GroupKind: schema.GroupKind{Group: "apps", Kind: "Deployment"}, Namespace: "shop", Name: "other"}
)

func newDependencyHub(t *testing.T, tc dependencyCase, needed bool) *dependencyHub {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme, metav1.AddMetaToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	h := &dependencyHub{builder: fake.NewClientBuilder().WithScheme(scheme)}
	h.kinds.Replace(map[schema.GroupKind]kinds.Kind{
		dependencyKey.GroupKind: {GroupVersionKind: corev1.SchemeGroupVersion.WithKind("ConfigMap"), Resource: "configmaps", Namespaced: true},
		dependentKey.GroupKind:  {GroupVersionKind: appsv1.SchemeGroupVersion.WithKind("Deployment"), Resource: "deployments", Namespaced: true},
	})
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: "config", UID: "config", Finalizers: []string{v1alpha1.PlacedFinalizer},
	}}
	if tc.annotation != nil {
		config.Annotations = map[string]string{v1alpha1.ClustersAnnotation: *tc.annotation}
	}
	placed := assignment(dependencyKey, tc.targets)
	placed.Spec.Decision.Source = tc.source
	h.builder.WithObjects(config, placed)
	for _, target := range tc.targets {
		name := string(target.Cluster)
		h.builder.WithObjects(&v1alpha1.Work{
			ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.ClusterNamespacePrefix + name, Name: dependencyKey.RecordName()},
			Spec:       v1alpha1.WorkSpec{Revision: 1, Source: placed.Spec.Object},
			Status: v1alpha1.WorkStatus{
				Revision:   1,
				Conditions: []metav1.Condition{{Type: v1alpha1.ConditionApplied, Status: metav1.ConditionTrue}},
				Manifests:  []v1alpha1.ManifestStatus{{UID: "there", Ready: true}},
			},
		})
	}
	for _, name := range []string{"east", "west"} {
		h.builder.WithObjects(&v1alpha1.Cluster{
			ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}, Spec: v1alpha1.ClusterSpec{Accepted: true},
			Status: v1alpha1.ClusterStatus{Conditions: []metav1.Condition{{Type: v1alpha1.ConditionReachable, Status: metav1.ConditionTrue}}},
		})
	}
	if needed {
		h.addDependent(dependentKey, "east")
	}
	if tc.elsewhere {
		h.addDependent(elsewhereKey, "west")
	}
	now := func() time.Time { return time.Unix(1000, 0) }
	direct := &lateClient{hub: h}
	var err error
	if h.reader, err = scope.NewReader(t.Context(), h, direct, &h.kinds, clusters.NewHeartbeats(h, direct, now), now); err != nil {
		t.Fatal(err)
	}
	h.stored = h.builder.Build()
	return h
}

func assignment(key kinds.Key, targets []v1alpha1.Target) *v1alpha1.Assignment {
	return &v1alpha1.Assignment{
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.RecordName(), UID: types.UID(key.RecordName())},
		Spec: v1alpha1.AssignmentSpec{
			Object:  v1alpha1.ObjectReference{Group: key.Group, Version: "v1", Kind: key.Kind, Namespace: key.Namespace, Name: key.Name, UID: types.UID(key.Name)},
			Targets: targets,
		},
	}
}

// addDependent stores a placed Deployment that names the ConfigMap, and its Assignment.
func (h *dependencyHub) addDependent(key kinds.Key, cluster string) {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{
		Namespace: key.Namespace, Name: key.Name, UID: types.UID(key.Name), Finalizers: []string{v1alpha1.PlacedFinalizer},
		Annotations: map[string]string{v1alpha1.ClustersAnnotation: cluster},
	}}
	d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "app", Image: "app", EnvFrom: []corev1.EnvFromSource{
		{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "config"}}},
	}}}
	a := assignment(key, targets(cluster, v1alpha1.TargetActive))
	a.Spec.Dependencies = []v1alpha1.DependencyReference{{Kind: "ConfigMap", Name: "config"}}
	h.builder.WithObjects(d, a)
}

// plan reads the ConfigMap's Scope, and plans its placement.
func (h *dependencyHub) plan(t *testing.T, views uint) (plan, error) {
	t.Helper()
	h.views, h.reads = views, 0
	k, _ := h.kinds.Get(dependencyKey.GroupKind)
	s, err := h.reader.Read(t.Context(), dependencyKey, k)
	if err != nil || s == nil {
		t.Fatalf("Read: got %v and %v, want a Scope", s, err)
	}
	r := &objectReconciler{reader: h.reader, capacity: limits.NewCapacity(), drains: limits.NewDrains()}
	return r.plan(t.Context(), s)
}

// lateClient is the API server: the hub stores its objects when all indexes are known.
type lateClient struct{ hub *dependencyHub }

func (c *lateClient) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	return c.hub.stored.Get(ctx, key, o, opts...)
}

func (c *lateClient) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	return c.hub.stored.List(ctx, list, opts...)
}

// lacks reports whether the cache lacks what the next read may show of the dependent.
func (h *dependencyHub) lacks() bool {
	h.reads++
	return h.views>>(h.reads-1)&1 == 1
}

func (h *dependencyHub) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if key == dependentKey.Assignment() && h.lacks() {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "assignments"}, key.Name)
	}
	return h.stored.Get(ctx, key, o, opts...)
}

func (h *dependencyHub) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if err := h.stored.List(ctx, list, opts...); err != nil {
		return err
	}
	switch list := list.(type) {
	case *v1alpha1.AssignmentList:
		if h.lacks() {
			list.Items = slices.DeleteFunc(list.Items, func(a v1alpha1.Assignment) bool { return a.Name == dependentKey.RecordName() })
		}
	case *metav1.PartialObjectMetadataList:
		if list.Kind == "DeploymentList" && h.lacks() { // not placed yet
			for i := range list.Items {
				if list.Items[i].Name == dependentKey.Name {
					list.Items[i].Finalizers = nil
				}
			}
		}
	}
	return nil
}

func (h *dependencyHub) IndexField(_ context.Context, o client.Object, field string, keys client.IndexerFunc) error {
	h.builder.WithIndex(o, field, keys)
	return nil
}

func (h *dependencyHub) GetInformer(context.Context, client.Object, ...cache.InformerGetOption) (cache.Informer, error) {
	return syncedInformer{}, nil
}

type syncedInformer struct{ cache.Informer }

func (syncedInformer) HasSynced() bool { return true }
