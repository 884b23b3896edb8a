// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// Object is what a policy looks at.
type Object struct {
	// Kind of the object.
	Kind schema.GroupKind
	// Namespace and Name of it.
	Namespace, Name string
	// Labels of it.
	Labels map[string]string
	// Annotations of it.
	Annotations map[string]string
	// NamespaceLabels are those of its namespace.
	NamespaceLabels map[string]string
	// Namespaced says that its kind is.
	Namespaced bool
}

// EffectivePolicy is what people want of one object.
type EffectivePolicy struct {
	// Source says who wants it: "annotation", "Placement shop/all" or "ClusterPlacement all".
	Source string
	// UID of the policy; empty when there is only an annotation.
	UID types.UID
	// Spec is the policy, with the defaults of the object's kind, and with the
	// annotation's clusters and weights.
	Spec v1alpha1.PlacementSpec
	// NamesClusters says that clusters are chosen by name: then each of them must exist.
	NamesClusters bool
}

// Digest is the same as long as clusters, weights, bounds and mode are.
func (w *EffectivePolicy) Digest() string {
	data, err := json.Marshal([]any{w.Spec.Clusters, w.Spec.Replicas})
	if err != nil {
		return err.Error() // of plain data: never
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:8])
}

// IncludesDependencies says that the object takes along what it needs.
func (w *EffectivePolicy) IncludesDependencies() bool { return w.Spec.Follow == nil || *w.Spec.Follow }

// Resolve returns what is wanted of an object, and nil when nobody wants it placed. Its
// errors are of the type *Error.
func Resolve(o Object, local []v1alpha1.Placement, global []v1alpha1.ClusterPlacement) (*EffectivePolicy, error) {
	text, annotated := o.Annotations[v1alpha1.ClustersAnnotation]
	wish, err := matchPolicy(o, local, global)
	if e, ok := errors.AsType[*Error](err); ok && annotated && e.Reason == v1alpha1.ReasonPolicyTie {
		wish, err = nil, nil // the annotation decides, and neither says the rest
	}
	if err != nil {
		return nil, err
	}
	if annotated {
		if wish == nil {
			wish = &EffectivePolicy{}
		}
		if err := wish.applyAnnotation(text); err != nil {
			return nil, err
		}
	}
	if wish == nil {
		return nil, nil
	}
	wish.setDefaults(o.Kind)
	return wish, nil
}

// matchPolicy returns the policy of the highest rank that selects the object.
func matchPolicy(o Object, local []v1alpha1.Placement, global []v1alpha1.ClusterPlacement) (*EffectivePolicy, error) {
	var found []EffectivePolicy
	for i := range local {
		p := &local[i]
		if p.Namespace != o.Namespace || !o.Namespaced || p.DeletionTimestamp != nil {
			continue
		}
		w := EffectivePolicy{Source: "Placement " + p.Namespace + "/" + p.Name, UID: p.UID, Spec: p.Spec}
		ok, err := matchesObject(w, o)
		if err != nil {
			return nil, err
		}
		if ok {
			found = append(found, w)
		}
	}
	if len(found) > 0 {
		return onlyMatch(found)
	}
	for i := range global {
		p := &global[i]
		if p.DeletionTimestamp != nil {
			continue
		}
		w := EffectivePolicy{Source: "ClusterPlacement " + p.Name, UID: p.UID, Spec: p.Spec.PlacementSpec}
		if o.Namespaced {
			ok, err := selectorMatches(p.Spec.NamespaceSelector, o.NamespaceLabels)
			if err != nil {
				return nil, selectorError(w.Source, "spec.namespaceSelector", err)
			}
			if !ok {
				continue
			}
		}
		ok, err := matchesObject(w, o)
		if err != nil {
			return nil, err
		}
		if ok {
			found = append(found, w)
		}
	}
	if len(found) == 0 {
		return nil, nil
	}
	return onlyMatch(found)
}

// onlyMatch returns the only one, and an error for a tie: the same one whatever the order.
func onlyMatch(found []EffectivePolicy) (*EffectivePolicy, error) {
	if len(found) > 1 {
		slices.SortFunc(found, func(a, b EffectivePolicy) int { return strings.Compare(a.Source, b.Source) })
		return nil, &Error{
			Reason: v1alpha1.ReasonPolicyTie, Object: found[0].Source, Field: "spec.objects",
			Message: fmt.Sprintf("%s selects this object too: leave it out of one of them, or set the annotation %s",
				found[1].Source, v1alpha1.ClustersAnnotation),
		}
	}
	w := found[0]
	w.Spec = *w.Spec.DeepCopy() // it is changed by annotation and defaults
	w.NamesClusters = len(w.Spec.Clusters.Names) > 0
	return &w, nil
}

// matchesObject says whether a policy selects an object.
func matchesObject(w EffectivePolicy, o Object) (bool, error) {
	if len(w.Spec.Objects) == 0 {
		return o.Namespaced, nil
	}
	for i, s := range w.Spec.Objects {
		if s.Kind == "" && !o.Namespaced || s.Kind != "" && (s.Kind != o.Kind.Kind || s.Group != o.Kind.Group) {
			continue
		}
		if len(s.Names) > 0 && !slices.Contains(s.Names, v1alpha1.ObjectName(o.Name)) {
			continue
		}
		ok, err := selectorMatches(s.Selector, o.Labels)
		if err != nil {
			return false, selectorError(w.Source, fmt.Sprintf("spec.objects[%d].selector", i), err)
		}
		if ok {
			return true, nil
		}
	}
	return false, nil
}

// selectorMatches says that a label selector selects; nil selects all.
func selectorMatches(selector *metav1.LabelSelector, set map[string]string) (bool, error) {
	if selector == nil {
		return true, nil
	}
	s, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		return false, fmt.Errorf("read selector: %w", err)
	}
	return s.Matches(labels.Set(set)), nil
}

func selectorError(object, field string, err error) error {
	return &Error{Reason: "InvalidSelector", Object: object, Field: field, Message: err.Error()}
}

// applyAnnotation replaces the policy's choice of clusters and its weights.
func (w *EffectivePolicy) applyAnnotation(text string) error {
	names, weights, err := ParseClustersAnnotation(text)
	if err != nil {
		return err
	}
	w.Source, w.NamesClusters = v1alpha1.SourceAnnotation, true
	tolerations := w.Spec.Clusters.Tolerations
	w.Spec.Clusters = v1alpha1.ClusterChoice{Tolerations: tolerations}
	for _, n := range names {
		w.Spec.Clusters.Names = append(w.Spec.Clusters.Names, v1alpha1.ClusterName(n))
	}
	w.Spec.Replicas.Weights = nil
	for n, weight := range weights {
		if w.Spec.Replicas.Weights == nil {
			w.Spec.Replicas.Weights = map[string]v1alpha1.Weight{}
		}
		w.Spec.Replicas.Weights[n] = v1alpha1.Weight(weight)
	}
	return nil
}

// clusterNamePattern is what the name of a Cluster may be.
var clusterNamePattern = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,53}[a-z0-9])?$`)

// ParseClustersAnnotation reads the annotation: names in order, and weights if there are any.
// Either all names have a weight or none; they act as weights of the object's replicas,
// so that "east=3,west=1" gives 3 and 1 of 4, and 6 and 2 of 8.
func ParseClustersAnnotation(text string) (names []string, weights map[string]int64, err error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil, nil
	}
	weights = map[string]int64{}
	seen := map[string]bool{}
	for part := range strings.SplitSeq(text, ",") {
		name, number, weighted := strings.Cut(strings.TrimSpace(part), "=")
		if !clusterNamePattern.MatchString(name) {
			return nil, nil, annotationError("%q is no name of a cluster", name)
		}
		if seen[name] {
			return nil, nil, annotationError("%s is named twice", name)
		}
		seen[name] = true
		names = append(names, name)
		if !weighted {
			continue
		}
		n, err := strconv.ParseInt(number, 10, 32)
		if err != nil || n < 0 || n > maxWeight {
			return nil, nil, annotationError("%s=%s: want a number from 0 to %d", name, number, maxWeight)
		}
		weights[name] = n
	}
	if len(weights) == 0 {
		return names, nil, nil
	}
	if len(weights) != len(names) {
		return nil, nil, annotationError("give all clusters a number, or none")
	}
	return names, weights, nil
}

// maxWeight is what package divide takes.
const maxWeight = 1_000_000

func annotationError(format string, args ...any) error {
	return &Error{
		Reason: v1alpha1.ReasonInvalidAnnotation, Field: "metadata.annotations[" + v1alpha1.ClustersAnnotation + "]",
		Message: fmt.Sprintf(format, args...) + ` (such as "east", "east,west" or "east=3,west=1")`,
	}
}

// setDefaults sets what nobody said.
func (w *EffectivePolicy) setDefaults(kind schema.GroupKind) {
	s := &w.Spec
	if s.Replicas.Mode == "" {
		s.Replicas.Mode = defaultReplicaMode(kind)
	}
	if kind == (schema.GroupKind{Kind: "Pod"}) {
		s.Replicas.Mode = v1alpha1.ReplicasSingle // a Pod runs once, wherever it is
	}
	if s.Move.Mode == "" {
		s.Move.Mode = v1alpha1.MakeBeforeBreak
		if breaksBeforeMake(kind) {
			s.Move.Mode = v1alpha1.BreakBeforeMake
		}
	}
	if s.OnDelete == "" {
		s.OnDelete = v1alpha1.DefaultOnDelete(kind)
	}
	if s.Apply.Conflict == "" {
		s.Apply.Conflict = v1alpha1.ConflictRefuse
	}
	if s.Status.Mode == "" {
		s.Status.Mode = v1alpha1.StatusAuto
	}
	if s.Status.Associated == "" {
		s.Status.Associated = v1alpha1.AssociatedCounts
	}
	if s.Move.OnDeadline == "" {
		s.Move.OnDeadline = v1alpha1.DeadlineHold
	}
}

// RemovesUnselected says that the policy which placed an object, known by its UID, is still
// there, and says that what it no longer selects is to be removed. A policy that was deleted,
// or is being deleted, says nothing.
func RemovesUnselected(uid types.UID, local []v1alpha1.Placement, global []v1alpha1.ClusterPlacement) bool {
	removes := func(o *metav1.ObjectMeta, spec *v1alpha1.PlacementSpec) bool {
		return uid != "" && o.UID == uid && o.DeletionTimestamp == nil && spec.OnUnselected == v1alpha1.OnUnselectedRemove
	}
	for i := range local {
		if removes(&local[i].ObjectMeta, &local[i].Spec) {
			return true
		}
	}
	for i := range global {
		if removes(&global[i].ObjectMeta, &global[i].Spec.PlacementSpec) {
			return true
		}
	}
	return false
}

// Error is a mistake of a person: the last good state stays until it is mended.
type Error struct {
	// Reason is one of api/placement/v1alpha1's, for condition and Event.
	Reason string
	// Field where the mistake is, of Object if that is named.
	Field string
	// Object that the field is of, such as "Placement shop/all"; empty: the placed one.
	Object string
	// Message says what is wrong and what would do.
	Message string
}

// Error is what a condition and an Event say.
func (e *Error) Error() string {
	text := e.Message
	if e.Field != "" {
		text = e.Field + ": " + text
	}
	if e.Object != "" {
		text = e.Object + ": " + text
	}
	return text
}
