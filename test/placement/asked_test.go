// SPDX-License-Identifier: Apache-2.0

//go:build placement

package placement

import (
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// asked is what people have said at the hub that may remove objects from clusters, as far as the
// writes have been gone through.
type asked struct {
	deleted   map[string]bool      // objects, by key
	annotated map[string]bool      // objects with ClustersAnnotation, by key
	policies  map[string]types.UID // by key
	lost      map[types.UID]bool   // policies that are deleted
	removes   map[types.UID]bool   // policies with onUnselected Remove
	clusters  bool                 // whether a Cluster was changed: drained, tainted or limited
}

func newAsked() *asked {
	return &asked{
		deleted: map[string]bool{}, annotated: map[string]bool{}, policies: map[string]types.UID{},
		lost: map[types.UID]bool{}, removes: map[types.UID]bool{},
	}
}

// note takes in a write at the hub.
func (a *asked) note(one write) {
	deletes := strings.HasPrefix(one.Verb, "delete")
	switch {
	case one.Group == v1alpha1.GroupName && one.Resource == "clusters":
		a.clusters = a.clusters || !one.ours()
	case one.Group == v1alpha1.GroupName && strings.HasSuffix(one.Resource, "placements"):
		for key, uid := range a.policies { // a deletecollection has no name
			if deletes && (key == one.Key() || one.Name == "" && strings.HasPrefix(key, one.Key())) {
				a.lost[uid] = true
			}
		}
		if uid := one.Object.GetUID(); uid != "" && !deletes {
			text, _, _ := unstructured.NestedString(one.Object.Object, "spec", "onUnselected")
			a.policies[one.Key()], a.removes[uid] = uid, text == string(v1alpha1.OnUnselectedRemove)
		}
	default:
		_, a.annotated[one.Key()] = one.Object.GetAnnotations()[v1alpha1.ClustersAnnotation]
		a.deleted[one.Key()] = deletes || one.Object.GetDeletionTimestamp() != nil
	}
}

// unasked says what is missing for an Assignment to leave a cluster; "" when a person has asked
// for it. Everywhere tells that it leaves all clusters.
func (a *asked) unasked(key string, assignment unstructured.Unstructured, everywhere bool) string {
	source, _, _ := unstructured.NestedString(assignment.Object, "spec", "decision", "source")
	text, _, _ := unstructured.NestedString(assignment.Object, "spec", "decision", "policyUID")
	switch policy := types.UID(text); {
	case a.deleted[key], a.clusters, source == "followed":
		return ""
	case source == "annotation" && !a.annotated[key]:
		return "the object has no annotation"
	case a.lost[policy]:
		return source + " is deleted"
	case everywhere && policy != "" && !a.removes[policy]:
		return source + " exists, and does not say onUnselected: Remove"
	}
	return ""
}
