// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"bytes"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// OwnFields returns the managed fields of an adopted object, in which the agent alone owns what it applies: the
// tools that wrote the object before have it no longer. Otherwise the next change at the hub would be a conflict
// with them. Fields that the agent does not apply, and those that a controller writes by a subresource (such as
// an autoscaler by scale), keep their owners. The label that allowed the adoption has no owner: the caller removes
// it. It returns false if nothing changes.
func OwnFields(live *unstructured.Unstructured) ([]metav1.ManagedFieldsEntry, bool, error) {
	var agents *fieldpath.Set
	entries := live.GetManagedFields()
	for _, e := range entries {
		if e.Manager == v1alpha1.AgentFieldManager && e.Operation == metav1.ManagedFieldsOperationApply && e.Subresource == "" {
			set, err := readFields(e)
			if err != nil {
				return nil, false, err
			}
			agents = set.Union(fieldpath.NewSet(fieldpath.MakePathOrDie("metadata", "labels", v1alpha1.AccessLabel))) // the adoption is over
		}
	}
	if agents == nil {
		return nil, false, fmt.Errorf("%s %s/%s: the agent owns no field of it", live.GetKind(), live.GetNamespace(), live.GetName())
	}
	var kept []metav1.ManagedFieldsEntry
	changed := false
	for _, e := range entries {
		if e.Manager == v1alpha1.AgentFieldManager || e.Subresource != "" {
			kept = append(kept, e)
			continue
		}
		set, err := readFields(e)
		if err != nil {
			return nil, false, err
		}
		left := set.Difference(agents)
		if left.Equals(set) {
			kept = append(kept, e)
			continue
		}
		changed = true
		// A map of which no field is left, such as data, is no field that the manager set.
		if left = left.Leaves().Intersection(set.Leaves()); left.Empty() {
			continue
		}
		raw, err := left.ToJSON()
		if err != nil {
			return nil, false, fmt.Errorf("write the fields of manager %s: %w", e.Manager, err)
		}
		e.FieldsV1 = &metav1.FieldsV1{}
		e.FieldsV1.SetRawBytes(raw)
		kept = append(kept, e)
	}
	return kept, changed, nil
}

func readFields(e metav1.ManagedFieldsEntry) (*fieldpath.Set, error) {
	set := &fieldpath.Set{}
	if e.FieldsV1 == nil {
		return set, nil
	}
	if err := set.FromJSON(bytes.NewReader(e.FieldsV1.GetRawBytes())); err != nil {
		return nil, fmt.Errorf("read the fields of manager %s: %w", e.Manager, err)
	}
	return set, nil
}
