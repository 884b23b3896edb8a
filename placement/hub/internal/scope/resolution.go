// SPDX-License-Identifier: Apache-2.0

package scope

import (
	"errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/internal/policy"
)

// Policies are those that may select an object.
type Policies struct {
	// Placements of the object's namespace.
	Placements []v1alpha1.Placement
	// ClusterPlacements of the hub.
	ClusterPlacements []v1alpha1.ClusterPlacement
}

// Resolution is what users request for an object.
type Resolution struct {
	// Policy is the effective policy; nil: no policy and no annotation selects the object.
	Policy *policy.EffectivePolicy
	// Mistake keeps the object from having an effective policy; nil: there is none.
	Mistake *policy.Error
	// Unselected reports that the policy which placed the object no longer selects it, and that this
	// is an order to remove it.
	Unselected bool
}

// Resolve returns what users request for the Scope's object. For an object that is deleted, or
// being deleted, they request nothing.
func Resolve(s *Scope) (Resolution, error) {
	if !s.Alive() {
		return Resolution{}, nil
	}
	return resolve(s, s.Object, s.NamespaceLabels, s.Policies)
}

func resolve(s *Scope, o metav1.Object, namespaceLabels map[string]string, p Policies) (Resolution, error) {
	effective, err := policy.Resolve(policy.Object{
		Kind: s.Key.GroupKind, Namespace: s.Key.Namespace, Name: s.Key.Name, Namespaced: s.Kind.Namespaced,
		Labels: o.GetLabels(), Annotations: o.GetAnnotations(), NamespaceLabels: namespaceLabels,
	}, p.Placements, p.ClusterPlacements)
	mistake, ok := errors.AsType[*policy.Error](err)
	if err != nil && !ok {
		return Resolution{}, err
	}
	return Resolution{
		Policy: effective, Mistake: mistake,
		Unselected: policy.RemovesUnselected(s.Assignment.Spec.Decision.PolicyUID, p.Placements, p.ClusterPlacements),
	}, nil
}

// equal reports whether two resolutions request the same.
func (r Resolution) equal(o Resolution) bool {
	if r.Unselected != o.Unselected || (r.Mistake == nil) != (o.Mistake == nil) || (r.Policy == nil) != (o.Policy == nil) {
		return false
	}
	switch {
	case r.Mistake != nil:
		return r.Mistake.Reason == o.Mistake.Reason
	case r.Policy != nil:
		return r.Policy.Source == o.Policy.Source && r.Policy.UID == o.Policy.UID && r.Policy.Digest() == o.Policy.Digest()
	}
	return true
}
