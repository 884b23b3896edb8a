// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
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
	"github.com/patchbay-cni/patchbay/placement/hub/internal/reports"
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
			h := newDependencyHub(t, append(tc.objects(), dependent(dependentKey, "east"), dependentAssignment(dependentKey, "east")))
			for views := range uint(1) << dependentReads {
				p, err := h.plan(t, dependencyKey, views)
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
	tc := dependencyCase{source: "dependency", targets: targets("east", v1alpha1.TargetActive)}
	p, err := newDependencyHub(t, tc.objects()).plan(t, dependencyKey, 0)
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := limits.TargetOf(p.next.Spec.Targets, "east"); got.State != v1alpha1.TargetRemoving {
		t.Errorf("got %+v, want the target east to be Removing", p.next.Spec.Targets)
	}
}

// (Safety 1) A dependency stays while the hub does not know whether another object needs it, and reports why.
func TestUnknownDependents(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason   string
		unlisted bool // objects of the dependent's kind
		message  string
	}{
		"lost":     {"Another client has deleted the Assignment of a placed object.", false, "the Assignment of Deployment.apps shop/web is missing"},
		"unlisted": {"A conversion webhook does not answer.", true, "objects of kind Deployment cannot be listed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			objects := dependencyCase{source: "dependency", targets: targets("east", v1alpha1.TargetActive)}.objects()
			h := newDependencyHub(t, append(objects, dependent(dependentKey, "east")))
			h.unlisted = tc.unlisted
			p, err := h.plan(t, dependencyKey, 0)
			if err != nil {
				t.Fatal(err)
			}
			if got, _ := limits.TargetOf(p.next.Spec.Targets, "east"); got.State != v1alpha1.TargetActive {
				t.Errorf("%s\ngot %+v, want the target east to stay", tc.reason, p.next.Spec.Targets)
			}
			c := meta.FindStatusCondition(p.conditions, v1alpha1.ConditionPlaced)
			if c == nil || c.Status != metav1.ConditionFalse || c.Reason != v1alpha1.ReasonAssignmentLost || !strings.Contains(c.Message, tc.message) {
				t.Errorf("%s\ngot %+v, want Placed=False with the reason %s and the message %q", tc.reason, c, v1alpha1.ReasonAssignmentLost, tc.message)
			}
		})
	}
}

// (Safety 1) An object whose Assignment was lost names its dependencies again, whatever else was lost. A
// dependency of an earlier template is recorded as long as it exists, also if the cache lacks it.
func TestDependenciesAreRecorded(t *testing.T) {
	t.Parallel()
	config := v1alpha1.DependencyReference{Kind: "ConfigMap", Name: "config"}
	later := v1alpha1.DependencyReference{Kind: "ConfigMap", Name: "later"}
	autoscaler := v1alpha1.DependencyReference{Group: "autoscaling", Kind: "HorizontalPodAutoscaler", Name: "web"}
	for name, tc := range map[string]struct {
		reason   string
		change   func(*appsv1.Deployment, *v1alpha1.Work)
		assigned bool
		want     []v1alpha1.DependencyReference
	}{
		"lost": {"Another client has deleted the Assignment.", func(*appsv1.Deployment, *v1alpha1.Work) {}, false, []v1alpha1.DependencyReference{config}},
		"mistake": {"Its annotation is invalid, too.", func(d *appsv1.Deployment, _ *v1alpha1.Work) {
			d.Annotations[v1alpha1.ClustersAnnotation] = "East!"
		}, false, []v1alpha1.DependencyReference{config}},
		"deleted": {"Its cluster has not removed it yet.", func(d *appsv1.Deployment, _ *v1alpha1.Work) {
			d.DeletionTimestamp = new(metav1.Unix(900, 0))
		}, false, []v1alpha1.DependencyReference{config}},
		"yielding": {"Its policy was lost, too, and yielded the replicas.", func(d *appsv1.Deployment, w *v1alpha1.Work) {
			d.Annotations, w.Spec.Apply.Yield = nil, []v1alpha1.FieldPath{"spec.replicas"}
		}, false, []v1alpha1.DependencyReference{config, autoscaler}},
		"earlier": {"Pods of the earlier template use the ConfigMap.", func(d *appsv1.Deployment, _ *v1alpha1.Work) {
			d.Spec.Template.Spec.Containers[0].EnvFrom[0].ConfigMapRef.Name = "later"
		}, true, []v1alpha1.DependencyReference{later, config}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, w := dependent(dependentKey, "east"), appliedWork(dependentKey, "east")
			tc.change(d, w)
			objects := []client.Object{
				d, w, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "config"}},
				&autoscalingv2.HorizontalPodAutoscaler{
					ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"},
					Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
						ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"},
					},
				},
			}
			if tc.assigned {
				objects = append(objects, dependentAssignment(dependentKey, "east"))
			}
			h := newDependencyHub(t, objects)
			h.lacksDependency = true
			p, err := h.plan(t, dependentKey, 0)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, p.next.Spec.Dependencies); diff != "" {
				t.Errorf("%s\ndependencies: -want +got\n%s", tc.reason, diff)
			}
		})
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

func (c dependencyCase) objects() []client.Object {
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: "config", UID: "config", Finalizers: []string{v1alpha1.PlacedFinalizer},
	}}
	if c.annotation != nil {
		config.Annotations = map[string]string{v1alpha1.ClustersAnnotation: *c.annotation}
	}
	a := assignment(dependencyKey, c.targets)
	a.Spec.Decision.Source = c.source
	objects := []client.Object{config, a}
	for _, target := range c.targets {
		objects = append(objects, appliedWork(dependencyKey, string(target.Cluster)))
	}
	if c.elsewhere {
		objects = append(objects, dependent(elsewhereKey, "west"), dependentAssignment(elsewhereKey, "west"))
	}
	return objects
}

var (
	dependencyKey = kinds.Key{GroupKind: schema.GroupKind{Kind: "ConfigMap"}, Namespace: "shop", Name: "config"}
	dependentKey  = kinds.Key{GroupKind: schema.GroupKind{Group: "apps", Kind: "Deployment"}, Namespace: "shop", Name: "web"}
	elsewhereKey  = kinds.Key{GroupKind: schema.GroupKind{Group: "apps", Kind: "Deployment"}, Namespace: "shop", Name: "other"}
)

func targets(namesAndStates ...any) (list []v1alpha1.Target) {
	for pair := range slices.Chunk(namesAndStates, 2) {
		name, _ := pair[0].(string)
		state, _ := pair[1].(v1alpha1.TargetState)
		list = append(list, v1alpha1.Target{Cluster: v1alpha1.ClusterName(name), State: state})
	}
	return list
}

// dependent returns a placed Deployment that names the ConfigMap.
func dependent(key kinds.Key, cluster string) *appsv1.Deployment {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{
		Namespace: key.Namespace, Name: key.Name, UID: types.UID(key.Name), Finalizers: []string{v1alpha1.PlacedFinalizer},
		Annotations: map[string]string{v1alpha1.ClustersAnnotation: cluster},
	}}
	d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "app", Image: "app", EnvFrom: []corev1.EnvFromSource{
		{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "config"}}},
	}}}
	return d
}

func dependentAssignment(key kinds.Key, cluster string) *v1alpha1.Assignment {
	a := assignment(key, targets(cluster, v1alpha1.TargetActive))
	a.Spec.Dependencies = []v1alpha1.DependencyReference{{Kind: "ConfigMap", Name: "config"}}
	return a
}

func assignment(key kinds.Key, targets []v1alpha1.Target) *v1alpha1.Assignment {
	return &v1alpha1.Assignment{
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.RecordName(), UID: types.UID(key.RecordName())},
		Spec:       v1alpha1.AssignmentSpec{Object: referenceTo(key), Targets: targets},
	}
}

// appliedWork returns a Work that its cluster has carried out.
func appliedWork(key kinds.Key, cluster string) *v1alpha1.Work {
	w := key.Work(cluster)
	return &v1alpha1.Work{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: w.Name},
		Spec:       v1alpha1.WorkSpec{Revision: 1, Source: referenceTo(key)},
		Status: v1alpha1.WorkStatus{
			Revision:   1,
			Conditions: []metav1.Condition{{Type: v1alpha1.ConditionApplied, Status: metav1.ConditionTrue}},
			Manifests:  []v1alpha1.ManifestStatus{{UID: "there", Ready: true}},
		},
	}
}

func referenceTo(key kinds.Key) v1alpha1.ObjectReference {
	return v1alpha1.ObjectReference{
		Group: key.Group, Version: "v1", Kind: key.Kind, Namespace: key.Namespace, Name: key.Name, UID: types.UID(key.Name),
	}
}

// dependencyHub plans the placement of objects with a cache whose reads may differ.
type dependencyHub struct {
	cache.Cache
	stored          client.Client // the API server
	reader          *scope.Reader
	kinds           kinds.Registry
	indexes         []func(*fake.ClientBuilder)
	lacksDependency bool // the cache has no metadata of the ConfigMap
	unlisted        bool // the cache has not listed the objects of any kind
	views           uint // a bit for each read: whether the cache lacks what the read may show of the dependent
	reads           int
}

func newDependencyHub(t *testing.T, objects []client.Object) *dependencyHub {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme, metav1.AddMetaToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"east", "west"} {
		objects = append(objects, &v1alpha1.Cluster{
			ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}, Spec: v1alpha1.ClusterSpec{Accepted: true},
			Status: v1alpha1.ClusterStatus{Conditions: []metav1.Condition{{Type: v1alpha1.ConditionReachable, Status: metav1.ConditionTrue}}},
		})
	}
	b, h := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...), &dependencyHub{}
	h.kinds.Replace(map[schema.GroupKind]kinds.Kind{
		dependencyKey.GroupKind: {GroupVersionKind: corev1.SchemeGroupVersion.WithKind("ConfigMap"), Resource: "configmaps", Namespaced: true},
		dependentKey.GroupKind:  {GroupVersionKind: appsv1.SchemeGroupVersion.WithKind("Deployment"), Resource: "deployments", Namespaced: true},
	})
	now, direct := func() time.Time { return time.Unix(1000, 0) }, &storedReader{h}
	var err error
	if h.reader, err = scope.NewReader(t.Context(), h, direct, &h.kinds, clusters.NewHeartbeats(h, direct, now), scope.ReaderOptions{Reports: reports.NewTracker(now), Now: now}); err != nil {
		t.Fatal(err)
	}
	for _, add := range h.indexes {
		add(b)
	}
	h.stored = b.Build()
	return h
}

// plan reads an object's Scope, and plans its placement.
func (h *dependencyHub) plan(t *testing.T, key kinds.Key, views uint) (plan, error) {
	t.Helper()
	h.views, h.reads = views, 0
	k, _ := h.kinds.Get(key.GroupKind)
	s, err := h.reader.Read(t.Context(), key, k)
	if err != nil || s == nil {
		t.Fatalf("Read: got %v and %v, want a Scope", s, err)
	}
	r := &objectReconciler{reader: h.reader, capacity: limits.NewCapacity(time.Now), drains: limits.NewDrains(), reports: reports.NewTracker(time.Now)}
	return r.plan(t.Context(), s)
}

// storedReader reads from the API server.
type storedReader struct{ hub *dependencyHub }

func (r *storedReader) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	return r.hub.stored.Get(ctx, key, o, opts...)
}

func (r *storedReader) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	return r.hub.stored.List(ctx, list, opts...)
}

// lacks reports whether the cache lacks what the next read may show of the dependent.
func (h *dependencyHub) lacks() bool {
	h.reads++
	return h.views>>(h.reads-1)&1 == 1
}

func (h *dependencyHub) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if key == dependentKey.Assignment() && h.lacks() || key == dependencyKey.Object() && h.lacksDependency {
		return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
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
	h.indexes = append(h.indexes, func(b *fake.ClientBuilder) { b.WithIndex(o, field, keys) })
	return nil
}

func (h *dependencyHub) GetInformer(context.Context, client.Object, ...cache.InformerGetOption) (cache.Informer, error) {
	return fakeInformer{synced: !h.unlisted}, nil
}

type fakeInformer struct {
	cache.Informer

	synced bool
}

func (i fakeInformer) HasSynced() bool { return i.synced }
