// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"

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

// Wish is what people want of one object.
type Wish struct {
	// Source says who wants it: "annotation", "Placement shop/all" or "ClusterPlacement all".
	Source string
	// UID of the policy; empty when there is only an annotation.
	UID types.UID
	// Spec is the policy, with the defaults of the object's kind, and with the
	// annotation's clusters and weights.
	Spec v1alpha1.PlacementSpec
	// Named says that clusters are chosen by name: then each of them must exist.
	Named bool
}

// SourceAnnotation is the Source of a wish that stands on the object itself.
const SourceAnnotation = "annotation"

// Digest is the same as long as clusters, weights, bounds and mode are.
func (w *Wish) Digest() string {
	data, err := json.Marshal([]any{w.Spec.Clusters, w.Spec.Replicas})
	if err != nil {
		return err.Error() // of plain data: never
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:8])
}

// Follows says that the object takes along what it needs.
func (w *Wish) Follows() bool { return w.Spec.Follow == nil || *w.Spec.Follow }

// Find returns what is wanted of an object, and nil when nobody wants it placed. Its
// errors are of the type *Error.
func Find(o Object, local []v1alpha1.Placement, global []v1alpha1.ClusterPlacement) (*Wish, error) {
	text, annotated := o.Annotations[v1alpha1.ClustersAnnotation]
	wish, err := find(o, local, global)
	if e, ok := errors.AsType[*Error](err); ok && annotated && e.Reason == v1alpha1.ReasonPolicyTie {
		wish, err = nil, nil // the annotation decides, and neither says the rest
	}
	if err != nil {
		return nil, err
	}
	if annotated {
		if wish == nil {
			wish = &Wish{}
		}
		if err := wish.annotate(text); err != nil {
			return nil, err
		}
	}
	if wish == nil {
		return nil, nil
	}
	wish.fill(o.Kind)
	return wish, nil
}

// annotate replaces the policy's choice of clusters and its weights.
func (w *Wish) annotate(text string) error {
	names, weights, err := ParseClusters(text)
	if err != nil {
		return err
	}
	w.Source, w.Named = SourceAnnotation, true
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

// fill sets what nobody said.
func (w *Wish) fill(kind schema.GroupKind) {
	s := &w.Spec
	if s.Replicas.Mode == "" {
		s.Replicas.Mode = defaultMode(kind)
	}
	if kind == (schema.GroupKind{Kind: "Pod"}) {
		s.Replicas.Mode = v1alpha1.ReplicasSingle // a Pod runs once, wherever it is
	}
	if s.Move.Mode == "" {
		s.Move.Mode = v1alpha1.MakeBeforeBreak
		if breaksFirst(kind) {
			s.Move.Mode = v1alpha1.BreakBeforeMake
		}
	}
	if s.OnDelete == "" {
		s.OnDelete = DefaultOnDelete(kind)
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
