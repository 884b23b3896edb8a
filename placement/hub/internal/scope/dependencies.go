// SPDX-License-Identifier: Apache-2.0

package scope

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/kinds"
	"github.com/patchbay-cni/patchbay/placement/internal/policy"
	"github.com/patchbay-cni/patchbay/placement/internal/render"
)

const (
	// maxDependencies is how many dependencies the Assignment's schema allows.
	maxDependencies = 256
	// missingAssignmentRetry is when to look again for a dependent's missing Assignment.
	missingAssignmentRetry = time.Second
	// autoscalerKind is placed with its workload only where the policy yields spec.replicas to it.
	autoscalerKind = "HorizontalPodAutoscaler"
)

func dependencyIndexKey(group, kind, name string) string {
	return strings.Join([]string{group, kind, name}, "/")
}

func dependencyIndexKeys(o client.Object) []string {
	a, ok := o.(*v1alpha1.Assignment)
	if !ok {
		return nil
	}
	var keys []string
	for _, d := range a.Spec.Dependencies {
		keys = append(keys, dependencyIndexKey(d.Group, d.Kind, d.Name))
	}
	return keys
}

// dependents returns the Assignments of the objects that need a namespaced one.
func (r *Reader) dependents(ctx context.Context, key kinds.Key) ([]v1alpha1.Assignment, error) {
	var list v1alpha1.AssignmentList
	if err := r.cached.List(ctx, &list, client.InNamespace(key.Namespace), client.UnsafeDisableDeepCopy,
		client.MatchingFields{dependencyIndex: dependencyIndexKey(key.Group, key.Kind, key.Name)}); err != nil {
		return nil, fmt.Errorf("list dependents of %s: %w", key, err)
	}
	return list.Items, nil
}

// requiredIn returns the clusters where a dependent needs the object, until its last replica has
// left the cluster. Wanted are those where it still does when all moves have ended.
func (r *Reader) requiredIn(ctx context.Context, s *Scope, dependents []v1alpha1.Assignment) (required, wanted map[string]bool, err error) {
	required, wanted = map[string]bool{}, map[string]bool{}
	for i := range dependents {
		needed, err := r.isNeeded(ctx, s, &dependents[i])
		if err != nil {
			return nil, nil, err
		}
		if !needed {
			continue
		}
		for _, t := range dependents[i].Spec.Targets {
			required[string(t.Cluster)] = true
			if t.State == v1alpha1.TargetPending || t.State == v1alpha1.TargetActive {
				wanted[string(t.Cluster)] = true
			}
		}
	}
	return required, wanted, nil
}

// isNeeded reports whether a dependent still needs the object. An annotated object goes to the
// clusters of its annotation once the dependent no longer names it.
func (r *Reader) isNeeded(ctx context.Context, s *Scope, dependent *v1alpha1.Assignment) (bool, error) {
	if _, annotated := s.Annotations()[v1alpha1.ClustersAnnotation]; !annotated {
		return true, nil
	}
	ref := dependent.Spec.Object
	o := kinds.Unstructured(schema.GroupVersionKind{Group: ref.Group, Version: ref.Version, Kind: ref.Kind})
	err := r.direct.Get(ctx, client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}, o)
	if kinds.IsObjectNotFound(err) {
		return true, nil // until its clusters have removed it
	}
	if err != nil {
		return false, fmt.Errorf("read %s: %w", kinds.KeyOf(ref), err)
	}
	return isNamedBy(s, o) || o.GetDeletionTimestamp() != nil, nil
}

// isNamedBy reports whether an object names the Scope's object, or is the workload that it is for.
func isNamedBy(s *Scope, o *unstructured.Unstructured) bool {
	return render.IsCompanionOf(s.Object, o) || slices.ContainsFunc(render.Dependencies(o), func(d render.Reference) bool {
		return d.Group == s.Key.Group && d.Kind == s.Key.Kind && d.Namespace == s.Key.Namespace && d.Name == s.Key.Name
	})
}

// Dependencies returns what the object needs in its clusters, by the effective policy p, nil for
// none. It keeps earlier dependencies of current as long as the object has targets, since Pods of
// an earlier template may use them. An object that has lost its policy, or is being deleted, keeps all of
// them. If its Assignment was lost, too, they are those that it names now.
func (r *Reader) Dependencies(
	ctx context.Context, s *Scope, p *policy.EffectivePolicy, current *v1alpha1.Assignment,
) ([]v1alpha1.DependencyReference, error) {
	if s.Object == nil || s.Assignment.UID != "" && (p == nil || !s.Alive()) {
		return current.Spec.Dependencies, nil
	}
	yields := yieldsReplicas(s, p)
	found := map[v1alpha1.DependencyReference]bool{}
	if p == nil || p.IncludesDependencies() {
		for _, d := range render.Dependencies(s.Object) {
			gk := schema.GroupKind{Group: d.Group, Kind: d.Kind}
			if d.Namespace == s.Key.Namespace && policy.PlaceableObject(gk, d.Namespace, d.Name) {
				found[v1alpha1.DependencyReference{Group: d.Group, Kind: d.Kind, Name: d.Name}] = true
			}
		}
		if err := r.addCompanions(ctx, s, yields, found); err != nil {
			return nil, err
		}
	}
	dependencies := slices.SortedFunc(maps.Keys(found), func(a, b v1alpha1.DependencyReference) int {
		return strings.Compare(dependencyIndexKey(a.Group, a.Kind, a.Name), dependencyIndexKey(b.Group, b.Kind, b.Name))
	})
	kept, err := r.keptDependencies(ctx, s, current, yields, found)
	if err != nil {
		return nil, err
	}
	dependencies = append(dependencies, kept...) // after the present ones, as they are cut first
	return dependencies[:min(len(dependencies), maxDependencies)], nil
}

// yieldsReplicas reports whether the policy yields spec.replicas. Without a policy, it reads that in the Works.
func yieldsReplicas(s *Scope, p *policy.EffectivePolicy) bool {
	if p != nil {
		return p.Spec.Apply.YieldsReplicas()
	}
	for _, w := range s.Works {
		if w.Spec.Apply.YieldsReplicas() {
			return true
		}
	}
	return false
}

// addCompanions adds the objects that refer to this one. An autoscaler is only added where the
// policy yields spec.replicas to it: else it would contend with the hub for the field.
func (r *Reader) addCompanions(ctx context.Context, s *Scope, yields bool, found map[v1alpha1.DependencyReference]bool) error {
	for _, gvk := range render.CompanionKinds() {
		if gvk.Kind == autoscalerKind && !yields {
			continue
		}
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
		if err := r.cached.List(ctx, list, client.InNamespace(s.Key.Namespace), client.UnsafeDisableDeepCopy); err != nil {
			return fmt.Errorf("list %ss in %s: %w", gvk.Kind, s.Key.Namespace, err)
		}
		for i := range list.Items {
			if o := &list.Items[i]; render.IsCompanionOf(o, s.Object) {
				found[v1alpha1.DependencyReference{Group: gvk.Group, Kind: gvk.Kind, Name: o.GetName()}] = true
			}
		}
	}
	return nil
}

// keptDependencies returns the recorded dependencies that the object no longer names. Each is kept
// until the object leaves, or until it is deleted or annotated itself: then a user may remove it.
func (r *Reader) keptDependencies(
	ctx context.Context, s *Scope, current *v1alpha1.Assignment, yields bool, found map[v1alpha1.DependencyReference]bool,
) ([]v1alpha1.DependencyReference, error) {
	if len(current.Spec.Targets) == 0 {
		return nil, nil
	}
	var kept []v1alpha1.DependencyReference
	for _, d := range current.Spec.Dependencies {
		if found[d] || d.Kind == autoscalerKind && !yields {
			continue
		}
		k, served := r.kinds.Get(schema.GroupKind{Group: d.Group, Kind: d.Kind})
		if !served {
			kept = append(kept, d)
			continue
		}
		stays, err := isKept(ctx, r.cached, s, d, k)
		if err == nil && !stays { // the cache may be behind
			stays, err = isKept(ctx, r.direct, s, d, k)
		}
		if err != nil {
			return nil, err
		}
		if stays {
			kept = append(kept, d)
		}
	}
	return kept, nil
}

// isKept reports whether a dependency exists, and is neither being deleted nor annotated.
func isKept(ctx context.Context, from client.Reader, s *Scope, d v1alpha1.DependencyReference, k kinds.Kind) (bool, error) {
	o := kinds.Metadata(k.GroupVersionKind)
	err := from.Get(ctx, client.ObjectKey{Namespace: s.Key.Namespace, Name: d.Name}, o)
	if kinds.IsObjectNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read metadata of %s %s/%s: %w", d.Kind, s.Key.Namespace, d.Name, err)
	}
	_, annotated := o.Annotations[v1alpha1.ClustersAnnotation]
	return o.DeletionTimestamp == nil && !annotated, nil
}

// UnknownDependents is why the hub cannot tell whether another object needs this one.
type UnknownDependents struct {
	// Mistake is what the Assignment reports.
	Mistake *policy.Error
	// RequeueAfter is when to look again.
	RequeueAfter time.Duration
}

// FindUnknownDependents returns why the hub cannot tell whether another object needs this one, and
// nil when it can. A placed object of the namespace may be without its Assignment, because another
// client has deleted that: its dependencies are unknown until the hub has made the Assignment again.
func (r *Reader) FindUnknownDependents(ctx context.Context, s *Scope) (*UnknownDependents, error) {
	assignments, err := r.namespaceAssignments(ctx, s)
	if err != nil {
		return nil, err
	}
	for _, k := range r.dependentKinds() {
		if !kinds.IsListed(ctx, r.cached, k) {
			return &UnknownDependents{RequeueAfter: kinds.ListRetry, Mistake: &policy.Error{
				Reason:  v1alpha1.ReasonAssignmentLost,
				Message: fmt.Sprintf("objects of kind %s cannot be listed, and one of them may need this object: it stays in its clusters", k.Kind),
			}}, nil
		}
		lost, err := r.placedWithoutAssignment(ctx, s, k, assignments)
		if err != nil {
			return nil, err
		}
		if len(lost) > 0 {
			return &UnknownDependents{RequeueAfter: missingAssignmentRetry, Mistake: &policy.Error{
				Reason:  v1alpha1.ReasonAssignmentLost,
				Message: fmt.Sprintf("the Assignment of %s is missing: this object stays in its clusters until the hub has created it again", lost[0]),
			}}, nil
		}
	}
	return nil, nil
}

// confirmUnneeded returns ErrStale if another object may need this one in a cluster that is to lose it. The
// Scope has no such dependent, but an Assignment that was missing then may be back now. So this function
// reads all Assignments at one moment, and the placed objects after them. It takes the dependencies of an
// object from its Assignment, and from the object in the API server where there is no Assignment.
func (r *Reader) confirmUnneeded(ctx context.Context, s *Scope, losing []string) error {
	if !s.Kind.Namespaced || !render.MayBeDependency(s.Key.GroupKind) {
		return nil
	}
	assignments, err := r.namespaceAssignments(ctx, s)
	if err != nil {
		return err
	}
	var dependents []v1alpha1.Assignment
	for _, a := range assignments {
		if slices.Contains(dependencyIndexKeys(a), dependencyIndexKey(s.Key.Group, s.Key.Kind, s.Key.Name)) {
			dependents = append(dependents, *a)
		}
	}
	required, _, err := r.requiredIn(ctx, s, dependents)
	if err != nil {
		return err
	}
	for _, name := range losing {
		if required[name] {
			return fmt.Errorf("plan %s: its dependents in %s: %w", s.Key, name, ErrStale)
		}
	}
	for _, k := range r.dependentKinds() {
		if !kinds.IsListed(ctx, r.cached, k) { // FindUnknownDependents reports it
			continue
		}
		lost, err := r.placedWithoutAssignment(ctx, s, k, assignments)
		if err != nil {
			return err
		}
		for _, dependent := range lost {
			o, err := ReadObject(ctx, r.direct, dependent, k)
			if err != nil {
				return err
			}
			if o != nil && isNamedBy(s, o) {
				return fmt.Errorf("plan %s: the missing Assignment of %s: %w", s.Key, dependent, ErrStale)
			}
		}
	}
	return nil
}

// dependentKinds returns the kinds whose objects may need an object of their namespace.
func (r *Reader) dependentKinds() []kinds.Kind {
	return slices.DeleteFunc(r.kinds.All(), func(k kinds.Kind) bool { return !k.Namespaced || !render.MayHaveDependencies(k.GroupKind()) })
}

// namespaceAssignments returns the Assignments of the object's namespace by name, as of one moment.
func (r *Reader) namespaceAssignments(ctx context.Context, s *Scope) (map[string]*v1alpha1.Assignment, error) {
	var list v1alpha1.AssignmentList
	if err := r.cached.List(ctx, &list, client.InNamespace(s.Key.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list Assignments in %s: %w", s.Key.Namespace, err)
	}
	byName := make(map[string]*v1alpha1.Assignment, len(list.Items))
	for i := range list.Items {
		byName[list.Items[i].Name] = &list.Items[i]
	}
	return byName, nil
}

// placedWithoutAssignment returns the other objects of a kind that have the finalizer, and none of the
// Assignments, which were read before. The finalizer precedes the Assignment, but the cache of the kind may be
// behind: where it has an object without both, this function lists the kind from the API server.
func (r *Reader) placedWithoutAssignment(
	ctx context.Context, s *Scope, k kinds.Kind, assignments map[string]*v1alpha1.Assignment,
) ([]kinds.Key, error) {
	placed, certain, err := listWithoutAssignment(ctx, r.cached, s, k, assignments)
	if err == nil && !certain {
		placed, _, err = listWithoutAssignment(ctx, r.direct, s, k, assignments)
	}
	return placed, err
}

// listWithoutAssignment returns the objects without Assignment that have the finalizer. Certain reports that
// there are no others.
func listWithoutAssignment(
	ctx context.Context, from client.Reader, s *Scope, k kinds.Kind, assignments map[string]*v1alpha1.Assignment,
) (placed []kinds.Key, certain bool, err error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(k.GroupVersion().WithKind(k.Kind + "List"))
	if err := from.List(ctx, list, client.InNamespace(s.Key.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, false, fmt.Errorf("list %ss in %s: %w", k.Kind, s.Key.Namespace, err)
	}
	certain = true
	for i := range list.Items {
		o := &list.Items[i]
		key := kinds.Key{GroupKind: k.GroupKind(), Namespace: o.Namespace, Name: o.Name}
		switch {
		case key == s.Key, assignments[key.RecordName()] != nil, !policy.PlaceableObject(key.GroupKind, key.Namespace, key.Name):
		case slices.Contains(o.Finalizers, v1alpha1.PlacedFinalizer):
			placed = append(placed, key)
		default:
			certain = false
		}
	}
	return placed, certain, nil
}
