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
	"github.com/patchbay-cni/patchbay/placement/internal/apportion"
)

// Object is what policies select an object by.
type Object struct {
	// Kind of the object.
	Kind schema.GroupKind
	// Namespace and Name of the object.
	Namespace, Name string
	// Labels of the object.
	Labels map[string]string
	// Annotations of the object.
	Annotations map[string]string
	// NamespaceLabels are the labels of its namespace.
	NamespaceLabels map[string]string
	// Namespaced is true for an object of a namespaced kind.
	Namespaced bool
}

// EffectivePolicy is the policy of one object, after annotation and defaults.
type EffectivePolicy struct {
	// Source is "annotation", "Placement <namespace>/<name>" or "ClusterPlacement <name>".
	Source string
	// UID of the policy; empty when there is only an annotation.
	UID types.UID
	// Spec is the policy, with the defaults of the object's kind, and with the
	// annotation's clusters and weights.
	Spec v1alpha1.PlacementSpec
	// NamesClusters is true when clusters are chosen by name: each of them must exist.
	NamesClusters bool
}

// Digest identifies clusters, weights, bounds and mode: it changes only when one of them does.
func (p *EffectivePolicy) Digest() string {
	data, err := json.Marshal([]any{p.Spec.Clusters, p.Spec.Replicas})
	if err != nil {
		return err.Error() // of plain data: never
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:8])
}

// IncludesDependencies tells whether the objects that this one needs are placed with it.
func (p *EffectivePolicy) IncludesDependencies() bool { return p.Spec.Follow == nil || *p.Spec.Follow }

// Resolve returns the effective policy of an object; nil when neither annotation nor policy selects it.
// Its errors are of the type *Error.
func Resolve(o Object, local []v1alpha1.Placement, global []v1alpha1.ClusterPlacement) (*EffectivePolicy, error) {
	if err := checkObjectAnnotations(o.Annotations); err != nil {
		return nil, err
	}
	text, annotated := o.Annotations[v1alpha1.ClustersAnnotation]
	p, err := matchPolicy(o, local, global)
	if e, ok := errors.AsType[*Error](err); ok && annotated && e.Reason == v1alpha1.ReasonPolicyTie {
		p, err = nil, nil // the annotation has the clusters, and neither policy has the rest
	}
	if err != nil {
		return nil, err
	}
	if annotated {
		if p == nil {
			p = &EffectivePolicy{}
		}
		if err := p.applyAnnotation(text); err != nil {
			return nil, err
		}
	}
	if p == nil {
		return nil, nil
	}
	if o.Annotations[v1alpha1.ConflictAnnotation] != "" {
		p.Spec.Apply.Conflict = v1alpha1.ConflictAdopt
	}
	p.setDefaults(o.Kind)
	return p, nil
}

// checkObjectAnnotations returns an error if an annotation that stands for a field of a policy has a value
// that is not allowed.
func checkObjectAnnotations(annotations map[string]string) error {
	if value, ok := annotations[v1alpha1.ConflictAnnotation]; ok && value != string(v1alpha1.ConflictAdopt) {
		return &Error{
			Reason: v1alpha1.ReasonInvalidAnnotation, Field: "metadata.annotations[" + v1alpha1.ConflictAnnotation + "]",
			Message: fmt.Sprintf("must be %s, or absent: got %q", v1alpha1.ConflictAdopt, value),
		}
	}
	value, ok := annotations[v1alpha1.OnDeleteAnnotation]
	if ok && value != string(v1alpha1.OnDeleteOrphan) && value != string(v1alpha1.OnDeleteDelete) {
		return &Error{
			Reason: v1alpha1.ReasonInvalidAnnotation, Field: "metadata.annotations[" + v1alpha1.OnDeleteAnnotation + "]",
			Message: fmt.Sprintf("must be %s or %s: got %q", v1alpha1.OnDeleteOrphan, v1alpha1.OnDeleteDelete, value),
		}
	}
	return nil
}

// matchPolicy returns the policy of the highest rank that selects the object; nil when none does.
func matchPolicy(o Object, local []v1alpha1.Placement, global []v1alpha1.ClusterPlacement) (*EffectivePolicy, error) {
	var found []EffectivePolicy
	for i := range local {
		p := &local[i]
		if p.Namespace != o.Namespace || !o.Namespaced || p.DeletionTimestamp != nil {
			continue
		}
		match := EffectivePolicy{Source: "Placement " + p.Namespace + "/" + p.Name, UID: p.UID, Spec: p.Spec}
		ok, err := matchesObject(match, o)
		if err != nil {
			return nil, err
		}
		if ok {
			found = append(found, match)
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
		match := EffectivePolicy{Source: "ClusterPlacement " + p.Name, UID: p.UID, Spec: p.Spec.PlacementSpec}
		if o.Namespaced {
			ok, err := selectorMatches(p.Spec.NamespaceSelector, o.NamespaceLabels)
			if err != nil {
				return nil, selectorError(match.Source, "spec.namespaceSelector", err)
			}
			if !ok {
				continue
			}
		}
		ok, err := matchesObject(match, o)
		if err != nil {
			return nil, err
		}
		if ok {
			found = append(found, match)
		}
	}
	if len(found) == 0 {
		return nil, nil
	}
	return onlyMatch(found)
}

// onlyMatch returns the only policy, and an error for a tie. The error does not depend on the order of
// found.
func onlyMatch(found []EffectivePolicy) (*EffectivePolicy, error) {
	if len(found) > 1 {
		slices.SortFunc(found, func(a, b EffectivePolicy) int { return strings.Compare(a.Source, b.Source) })
		return nil, &Error{
			Reason: v1alpha1.ReasonPolicyTie, Object: found[0].Source, Field: "spec.objects",
			Message: fmt.Sprintf("%s selects this object too: leave it out of one of them, or set the annotation %s",
				found[1].Source, v1alpha1.ClustersAnnotation),
		}
	}
	p := found[0]
	p.Spec = *p.Spec.DeepCopy() // annotation and defaults change it
	p.NamesClusters = len(p.Spec.Clusters.Names) > 0
	return &p, nil
}

// matchesObject tells whether a policy selects an object.
func matchesObject(p EffectivePolicy, o Object) (bool, error) {
	if len(p.Spec.Objects) == 0 {
		return o.Namespaced, nil
	}
	for i, s := range p.Spec.Objects {
		if s.Kind == "" && !o.Namespaced || s.Kind != "" && (s.Kind != o.Kind.Kind || s.Group != o.Kind.Group) {
			continue
		}
		if len(s.Names) > 0 && !slices.Contains(s.Names, v1alpha1.ObjectName(o.Name)) {
			continue
		}
		ok, err := selectorMatches(s.Selector, o.Labels)
		if err != nil {
			return false, selectorError(p.Source, fmt.Sprintf("spec.objects[%d].selector", i), err)
		}
		if ok {
			return true, nil
		}
	}
	return false, nil
}

// selectorMatches tells whether a label selector selects labels; nil selects all.
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
	return &Error{Reason: v1alpha1.ReasonInvalidSelector, Object: object, Field: field, Message: err.Error()}
}

// applyAnnotation replaces the policy's clusters, except its tolerations, and its weights.
func (p *EffectivePolicy) applyAnnotation(text string) error {
	names, weights, err := ParseClustersAnnotation(text)
	if err != nil {
		return err
	}
	p.Source, p.NamesClusters = v1alpha1.SourceAnnotation, true
	tolerations := p.Spec.Clusters.Tolerations
	p.Spec.Clusters = v1alpha1.ClusterChoice{Tolerations: tolerations}
	for _, n := range names {
		p.Spec.Clusters.Names = append(p.Spec.Clusters.Names, v1alpha1.ClusterName(n))
	}
	p.Spec.Replicas.Weights = nil
	for n, weight := range weights {
		if p.Spec.Replicas.Weights == nil {
			p.Spec.Replicas.Weights = map[string]v1alpha1.Weight{}
		}
		p.Spec.Replicas.Weights[n] = v1alpha1.Weight(weight)
	}
	return nil
}

// clusterNamePattern matches the names that a Cluster may have.
var clusterNamePattern = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,53}[a-z0-9])?$`)

// ParseClustersAnnotation parses the annotation into cluster names in order, and their weights by name;
// nil without weights. Either all names have a weight or none. "east=3,west=1" divides 4 replicas into
// 3 and 1, and 8 into 6 and 2.
func ParseClustersAnnotation(text string) (names []string, weights map[string]int64, err error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil, nil
	}
	weights = map[string]int64{}
	seen := map[string]bool{}
	for part := range strings.SplitSeq(text, ",") {
		name, number, weighted := strings.Cut(strings.TrimSpace(part), "=")
		if !clusterNamePattern.MatchString(name) {
			return nil, nil, annotationError("%q must be the name of a cluster", name)
		}
		if seen[name] {
			return nil, nil, annotationError("%s must be named once only", name)
		}
		seen[name] = true
		names = append(names, name)
		if !weighted {
			continue
		}
		n, err := strconv.ParseInt(number, 10, 32)
		if err != nil || n < 0 || n > maxWeight {
			return nil, nil, annotationError("%s=%s must have a number from 0 to %d", name, number, maxWeight)
		}
		weights[name] = n
	}
	if len(weights) == 0 {
		return names, nil, nil
	}
	if len(weights) != len(names) {
		return nil, nil, annotationError("all clusters must have a number, or none")
	}
	return names, weights, nil
}

// maxWeight is the largest weight of a cluster.
const maxWeight = apportion.MaxWeight

func annotationError(format string, args ...any) error {
	return &Error{
		Reason: v1alpha1.ReasonInvalidAnnotation, Field: "metadata.annotations[" + v1alpha1.ClustersAnnotation + "]",
		Message: fmt.Sprintf(format, args...) + ` (such as "east", "east,west" or "east=3,west=1")`,
	}
}

// setDefaults sets the fields that neither policy nor annotation sets.
func (p *EffectivePolicy) setDefaults(kind schema.GroupKind) {
	s := &p.Spec
	if s.Replicas.Mode == "" {
		s.Replicas.Mode = defaultReplicaMode(kind)
	}
	if kind == (schema.GroupKind{Kind: "Pod"}) {
		s.Replicas.Mode = v1alpha1.ReplicasSingle // a Pod runs once, in one cluster
	}
	switch {
	case RunsOnce(kind), BreaksBeforeMake(kind) && (s.Move.Mode == "" || !p.namesKind(kind)):
		s.Move.Mode = v1alpha1.BreakBeforeMake
	case s.Move.Mode == "":
		s.Move.Mode = v1alpha1.MakeBeforeBreak
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

// namesKind tells whether the policy selects objects of a kind by its name. A policy for all kinds says
// nothing about the needs of one.
func (p *EffectivePolicy) namesKind(kind schema.GroupKind) bool {
	return slices.ContainsFunc(p.Spec.Objects, func(s v1alpha1.ObjectSelector) bool { return s.Group == kind.Group && s.Kind == kind.Kind })
}

// RemovesUnselected tells whether the policy with that UID exists and has onUnselected: Remove. It is
// false for a policy that was deleted, or is being deleted.
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

// Error is a user's mistake: the last valid state stays until the user corrects it.
type Error struct {
	// Reason for condition and Event, one of api/placement/v1alpha1's.
	Reason string
	// Field with the mistake, of Object if that is set.
	Field string
	// Object with the field, such as "Placement shop/all"; empty for the placed object.
	Object string
	// Message tells what is wrong and how to correct it.
	Message string
}

// Error is the message for condition and Event: object, field and Message.
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
