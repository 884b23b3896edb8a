// SPDX-License-Identifier: Apache-2.0

package scope

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/clusters"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/kinds"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/limits"
	"github.com/patchbay-cni/patchbay/placement/internal/policy"
	"github.com/patchbay-cni/patchbay/placement/internal/render"
	"github.com/patchbay-cni/patchbay/placement/internal/stability"
)

// Indexes of the cache.
const (
	workNameIndex   = "metadata.name"     // Works by name: one object's Works share it
	dependencyIndex = "spec.dependencies" // Assignments by what their objects need
)

// inventoryRetry is when to decide again after a decision that used a cluster's reachability before it was stored.
const inventoryRetry = 5 * time.Second

// workReadRetry is when to ask again whether a Work is gone, after the API server did not answer.
const workReadRetry = time.Second

// ReportTracker remembers what clusters have reported recently.
type ReportTracker interface {
	// Of returns the reports of a Work, and the time up to which they are complete; zero while that is not known.
	Of(cluster, work string) (reports stability.History, until time.Time)
	// Since returns when it began to: what was reported before is not known.
	Since() time.Time
}

// Reader reads Scopes.
type Reader struct {
	cached     cache.Cache
	direct     client.Reader
	kinds      *kinds.Registry
	heartbeats *clusters.Heartbeats
	options    ReaderOptions
	rules      rulesCache
}

// ReaderOptions are options of a Reader.
type ReaderOptions struct {
	// Reports of all clusters.
	Reports ReportTracker
	// DefaultStable is how long reports must last where no policy says it.
	DefaultStable time.Duration
	// Now is the clock.
	Now func() time.Time
}

// NewReader returns a Reader, and adds the indexes that it needs to the cache.
func NewReader(
	ctx context.Context, cached cache.Cache, direct client.Reader, registry *kinds.Registry, heartbeats *clusters.Heartbeats, options ReaderOptions,
) (*Reader, error) {
	if err := cached.IndexField(ctx, &v1alpha1.Assignment{}, dependencyIndex, dependencyIndexKeys); err != nil {
		return nil, fmt.Errorf("index Assignments: %w", err)
	}
	if err := cached.IndexField(ctx, &v1alpha1.Work{}, workNameIndex, func(o client.Object) []string {
		return []string{o.GetName()}
	}); err != nil {
		return nil, fmt.Errorf("index Works: %w", err)
	}
	if err := cached.IndexField(ctx, &v1alpha1.Work{}, TrafficIndex, func(o client.Object) []string {
		if w, ok := o.(*v1alpha1.Work); ok {
			return TrafficIndexKeys(w)
		}
		return nil
	}); err != nil {
		return nil, fmt.Errorf("index Works by endpoints: %w", err)
	}
	for _, o := range []client.Object{&v1alpha1.Work{}, &v1alpha1.Assignment{}} {
		if err := cached.IndexField(ctx, o, volumeIndex, volumeIndexKeys); err != nil {
			return nil, fmt.Errorf("index volumes: %w", err)
		}
	}
	return &Reader{cached: cached, direct: direct, kinds: registry, heartbeats: heartbeats, options: options}, nil
}

// Read returns the Scope of an object, and nil when placement does not concern it.
func (r *Reader) Read(ctx context.Context, key kinds.Key, k kinds.Kind) (*Scope, error) {
	s := &Scope{Key: key, Kind: k, Now: r.options.Now(), Assignment: &v1alpha1.Assignment{}, DefaultStable: r.options.DefaultStable}
	metadata := kinds.Metadata(k.GroupVersionKind)
	err := r.cached.Get(ctx, key.Object(), metadata)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("read metadata of %s: %w", key, err)
	}
	if err == nil && !policy.PlaceableObject(key.GroupKind, key.Namespace, key.Name) {
		return nil, nil
	}
	if err := r.cached.Get(ctx, key.Assignment(), s.Assignment); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("read the Assignment of %s: %w", key, err)
	}
	if err := r.readWorks(ctx, s); err != nil {
		return nil, err
	}
	var dependents []v1alpha1.Assignment
	if k.Namespaced {
		dependents, err = r.dependents(ctx, key)
	}
	if err != nil {
		return nil, err
	}
	if s.Assignment.UID == "" && len(s.Works) == 0 {
		concerned, err := r.isConcerned(ctx, s, metadata, len(dependents) > 0)
		if err != nil || !concerned {
			return nil, err
		}
	}
	if s.Object, err = ReadObject(ctx, r.direct, key, k); err != nil {
		return nil, err
	}
	if s.RequiredIn, s.WantedIn, err = r.requiredIn(ctx, s, dependents); err != nil {
		return nil, err
	}
	if err := readClaims(ctx, r, s, dependents); err != nil {
		return nil, err
	}
	s.ReplicaBounds = replicaBounds(s.Object, dependents)
	return s, r.readSurroundings(ctx, s)
}

// replicaBounds returns the bounds of an autoscaler in each cluster, by the Assignments of the objects that need it: in
// a move of what it scales, no load may have reached the receiving clusters yet, and a cluster that loses replicas must
// not get them back.
func replicaBounds(o *unstructured.Unstructured, dependents []v1alpha1.Assignment) map[string]ReplicaBounds {
	if o == nil || o.GetKind() != autoscalerKind {
		return nil
	}
	bounds := map[string]ReplicaBounds{}
	for i := range dependents {
		a := &dependents[i]
		scaled := a.Spec.Object
		if a.Spec.Decision.AutoscaledReplicas == 0 || !render.Scales(o, schema.GroupKind{Group: scaled.Group, Kind: scaled.Kind}, scaled.Name) {
			continue
		}
		for _, t := range a.Spec.Targets {
			desired := ptr.Deref(t.Replicas, 0)
			n := ptr.Deref(t.RequestedReplicas, desired)
			keepsOwn := t.RequestedReplicas == nil && t.AutoscaledReplicas != nil // it has had the whole object before the move
			if n > 0 && !keepsOwn && (t.State == v1alpha1.TargetActive || t.State == v1alpha1.TargetDraining) {
				bounds[string(t.Cluster)] = ReplicaBounds{Min: n, Exact: desired < n}
			}
		}
	}
	return bounds
}

// readWorks reads the object's Works in all clusters.
func (r *Reader) readWorks(ctx context.Context, s *Scope) error {
	works, err := worksNamed(ctx, r.cached, s.Key.RecordName())
	if err != nil {
		return err
	}
	s.Works, s.Reports, s.Observed, s.ObservedSince = works, map[string]WorkReport{}, map[string]Observed{}, r.options.Reports.Since()
	for cluster, w := range works {
		s.Reports[cluster] = ReportOf(s.Key.GroupKind, w)
		s.Observed[cluster] = r.observed(cluster, w.Name, s.Reports[cluster], s.Now)
	}
	return nil
}

// observed returns the recent reports of a Work with the cached one, which may be later.
func (r *Reader) observed(cluster, work string, report WorkReport, now time.Time) Observed {
	last, known := report.Observation(now)
	if !known {
		return Observed{}
	}
	history, until := r.options.Reports.Of(cluster, work)
	return Observed{Reports: history.Add(last, 2*stability.MaxWindow), Until: until}
}

// isConcerned reports whether an object without Assignment and Works needs an Assignment.
func (r *Reader) isConcerned(ctx context.Context, s *Scope, o *metav1.PartialObjectMetadata, isDependency bool) (bool, error) {
	switch {
	case o.UID == "":
		return false, nil
	case slices.Contains(o.Finalizers, v1alpha1.PlacedFinalizer):
		return true, nil
	case o.DeletionTimestamp != nil:
		return false, nil
	case isDependency:
		return true, nil
	}
	policies, labels, err := r.readPolicies(ctx, r.cached, s)
	if err != nil {
		return false, err
	}
	resolution, err := resolve(s, o, labels, policies)
	return resolution.Policy != nil || resolution.Mistake != nil, err
}

// ReadObject reads an object from the API server, and returns nil if it does not exist. A cache may
// be behind. It returns an error if the API server does not serve the kind.
func ReadObject(ctx context.Context, direct client.Reader, key kinds.Key, k kinds.Kind) (*unstructured.Unstructured, error) {
	o := kinds.Unstructured(k.GroupVersionKind)
	err := direct.Get(ctx, key.Object(), o)
	if kinds.IsObjectNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", key, err)
	}
	return o, nil
}

// readSurroundings reads what decisions depend on beside the object's own records.
func (r *Reader) readSurroundings(ctx context.Context, s *Scope) error {
	inventory, err := r.heartbeats.Inventory(ctx)
	if err != nil {
		return err
	}
	s.Clusters, s.TakenNamespaces = inventory.Clusters, inventory.TakenNamespaces
	s.Silence, s.LossClocks, s.DeclaredLost = inventory.Silence, inventory.LossClocks, inventory.DeclaredLost
	if inventory.Unstored {
		s.RequeueAfter = inventoryRetry
	}
	if s.Object != nil {
		if s.Policies, s.NamespaceLabels, err = r.readPolicies(ctx, r.cached, s); err != nil {
			return err
		}
		if err := readUserPolicies(ctx, r, s); err != nil {
			return err
		}
	}
	if err := r.readPodPriority(ctx, s); err != nil {
		return err
	}
	if err := readSharedVolumes(ctx, r.cached, s); err != nil {
		return err
	}
	if s.Rules, err = r.rules.read(ctx, r.cached, s.Key.Namespace); err != nil {
		return err
	}
	r.readGoneWorks(ctx, s)
	return r.readTraffic(ctx, s)
}

// readPodPriority reads the priority of the object's Pods if a drain needs it. The API server has it in a Pod, and
// in the PriorityClass that a Pod template names. A class that the hub does not have has the priority 0.
func (r *Reader) readPodPriority(ctx context.Context, s *Scope) error {
	if s.Object == nil || !s.isDrained() {
		return nil
	}
	priority, class := render.PodPriority(s.Object)
	if priority != nil || class == "" {
		if priority != nil {
			s.PodPriority = *priority
		}
		return nil
	}
	o := kinds.Unstructured(schema.GroupVersionKind{Group: "scheduling.k8s.io", Version: "v1", Kind: "PriorityClass"})
	err := r.direct.Get(ctx, client.ObjectKey{Name: class}, o)
	switch {
	case kinds.IsObjectNotFound(err), meta.IsNoMatchError(err):
		return nil
	case err != nil:
		return fmt.Errorf("read PriorityClass %s: %w", class, err)
	}
	value, _, err := unstructured.NestedInt64(o.Object, "value")
	if err != nil {
		return fmt.Errorf("PriorityClass %s: %w", class, err)
	}
	s.PodPriority = int32(value)
	return nil
}

// isDrained reports whether the object is in a draining cluster, and does not leave it yet.
func (s *Scope) isDrained() bool {
	for _, t := range s.Assignment.Spec.Targets {
		if limits.IsDraining(s.Clusters[string(t.Cluster)]) && !limits.IsLeaving(t) {
			return true
		}
	}
	return false
}

// readPolicies reads the policies that may select the object, and the labels of its namespace.
func (r *Reader) readPolicies(ctx context.Context, from client.Reader, s *Scope) (p Policies, namespaceLabels map[string]string, err error) {
	if s.Kind.Namespaced {
		ns := kinds.NamespaceMetadata()
		if err := from.Get(ctx, client.ObjectKey{Name: s.Key.Namespace}, ns); client.IgnoreNotFound(err) != nil {
			return Policies{}, nil, fmt.Errorf("read namespace %s: %w", s.Key.Namespace, err)
		}
		namespaceLabels = ns.Labels
		var list v1alpha1.PlacementList
		if err := from.List(ctx, &list, client.InNamespace(s.Key.Namespace), client.UnsafeDisableDeepCopy); err != nil {
			return Policies{}, nil, fmt.Errorf("list Placements: %w", err)
		}
		p.Placements = list.Items
	}
	var list v1alpha1.ClusterPlacementList
	if err := from.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return Policies{}, nil, fmt.Errorf("list ClusterPlacements: %w", err)
	}
	p.ClusterPlacements = list.Items
	return p, namespaceLabels, nil
}

// readGoneWorks asks the API server for Works that are missing in the cache, where a target waits
// for its Work to be gone.
func (r *Reader) readGoneWorks(ctx context.Context, s *Scope) {
	s.GoneWorks = map[string]bool{}
	for _, t := range s.Assignment.Spec.Targets {
		cluster := string(t.Cluster)
		waits := t.State == v1alpha1.TargetRemoving && !s.WasSent(cluster) || s.Clusters[cluster] == nil && t.State != ""
		if s.Works[cluster] != nil || !waits {
			continue
		}
		err := r.direct.Get(ctx, s.Key.Work(cluster), &v1alpha1.Work{})
		switch {
		case kinds.IsObjectNotFound(err):
			s.GoneWorks[cluster] = true
		case err != nil:
			s.RequeueAfter = workReadRetry
		}
	}
}

// Confirm reads again what the decision to take the object, or replicas, from these clusters depends on: from the
// API server, or of the dependents so that no change between two reads hides one. Counted are the clusters whose
// replicas the decision relies on; the value is true for one that it takes replicas from. Confirm returns ErrStale when
// that is not what the Scope has.
func (r *Reader) Confirm(ctx context.Context, s *Scope, decided Resolution, losing []string, counted map[string]bool) error {
	if !s.Alive() {
		return nil // the object's deletion was read from the API server
	}
	if err := r.confirmReports(ctx, s, counted); err != nil || len(losing) == 0 {
		return err
	}
	policies, labels, err := r.readPolicies(ctx, r.direct, s)
	if err != nil {
		return err
	}
	stored, err := resolve(s, s.Object, labels, policies)
	if err != nil {
		return err
	}
	if !stored.equal(decided) {
		return fmt.Errorf("plan %s: its policy: %w", s.Key, ErrStale)
	}
	for _, name := range losing {
		cached, c := s.Clusters[name], &v1alpha1.Cluster{}
		if cached == nil {
			continue
		}
		err := r.direct.Get(ctx, client.ObjectKey{Name: name}, c)
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("read Cluster %s: %w", name, err)
		}
		if err != nil || c.UID != cached.UID || c.Generation != cached.Generation || !maps.Equal(c.Labels, cached.Labels) {
			return fmt.Errorf("plan %s: Cluster %s: %w", s.Key, name, ErrStale)
		}
	}
	return r.confirmUnneeded(ctx, s, losing)
}

// confirmReports reads the Works of these clusters again: the cache may have a heartbeat that dates a report, and not
// the report. Fewer available replicas than in the cache do not replace others, and more are not unavailable: the step
// must not take them.
func (r *Reader) confirmReports(ctx context.Context, s *Scope, counted map[string]bool) error {
	for _, name := range slices.Sorted(maps.Keys(counted)) {
		cached := s.Works[name]
		if cached == nil {
			continue
		}
		w := &v1alpha1.Work{}
		err := r.direct.Get(ctx, s.Key.Work(name), w)
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("read Work %s: %w", s.Key.Work(name), err)
		}
		before, now := s.Reports[name], ReportOf(s.Key.GroupKind, w)
		failed := before.Current && !now.Current || before.Ready && !now.Ready || now.Counts.Available < before.Counts.Available
		recovered := counted[name] && now.Counts.Available > before.Counts.Available
		scaledUp := ptr.Deref(now.AutoscaledReplicas, 0) > ptr.Deref(before.AutoscaledReplicas, 0) // more are wanted
		if err != nil || w.UID != cached.UID || failed || recovered || scaledUp {
			return fmt.Errorf("plan %s: Work %s: %w", s.Key, s.Key.Work(name), ErrStale)
		}
	}
	return nil
}

// ConfirmVolume reads the Work of a cluster again, on whose report another cluster gets a volume. It returns ErrStale
// when the Scope does not have it as it is.
func (r *Reader) ConfirmVolume(ctx context.Context, s *Scope, cluster string) error {
	w, cached := &v1alpha1.Work{}, s.Works[cluster]
	err := r.direct.Get(ctx, s.Key.Work(cluster), w)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read Work %s: %w", s.Key.Work(cluster), err)
	}
	if err != nil && cached == nil && s.GoneWorks[cluster] {
		return nil
	}
	if err != nil || cached == nil || w.UID != cached.UID || w.ResourceVersion != cached.ResourceVersion {
		return fmt.Errorf("plan %s: Work %s: %w", s.Key, s.Key.Work(cluster), ErrStale)
	}
	return nil
}
