// SPDX-License-Identifier: Apache-2.0

package works

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// cededManager owns fields that the agent wrote once and leaves to others: a field
// that loses its last owner would be reset to its default.
const cededManager = v1alpha1.AgentFieldManager + "-ceded"

// cededFields is what a manifest leaves to others.
type cededFields struct {
	// omitted are the fields that are not applied (any more).
	omitted [][]string
	// transferred are those of them that have no owner but us: cededManager gets them first.
	transferred [][]string
}

// findCededFields decides which fields of a live object we leave to others: those of createOnly,
// and those of yield that another manager owns.
func findCededFields(live *unstructured.Unstructured, policy v1alpha1.ApplyPolicy) (cededFields, error) {
	var c cededFields
	for i, list := range [][]v1alpha1.FieldPath{policy.CreateOnly, policy.Yield} {
		for _, field := range list {
			path, err := parseFieldPath(field)
			if err != nil {
				return c, err
			}
			theirs := ownedByOthers(live, path)
			createOnly := i == 0
			if createOnly || theirs {
				c.omitted = append(c.omitted, path)
			}
			if createOnly && !theirs && agentFields(live).has(path) {
				c.transferred = append(c.transferred, path)
			}
		}
	}
	return c, nil
}

// parseFieldPath reads a FieldPath: names between dots, a quoted key in brackets.
func parseFieldPath(path v1alpha1.FieldPath) ([]string, error) {
	var parts []string
	for rest := string(path); rest != ""; {
		if inner, ok := strings.CutPrefix(rest, `["`); ok {
			key, after, ok := strings.Cut(inner, `"]`)
			if !ok {
				return nil, fmt.Errorf("read field path %q: no \"] closes the key", path)
			}
			parts, rest = append(parts, key), strings.TrimPrefix(after, ".")
			continue
		}
		end := strings.IndexAny(rest, ".[")
		if end < 0 {
			end = len(rest)
		}
		if end == 0 {
			return nil, fmt.Errorf("read field path %q: a name is missing", path)
		}
		parts = append(parts, rest[:end])
		rest = strings.TrimPrefix(rest[end:], ".")
	}
	if len(parts) == 0 {
		return nil, fmt.Errorf("read field path %q: it is empty", path)
	}
	return parts, nil
}

// ownedByOthers tells whether a manager that is not ours owns the field.
func ownedByOthers(o *unstructured.Unstructured, path []string) bool {
	for _, entry := range o.GetManagedFields() {
		if entry.Manager != v1alpha1.AgentFieldManager && parseFields(entry).has(path) {
			return true
		}
	}
	return false
}

// transferManifest is the manifest by which cededManager takes fields over, with their present
// values; nil when there is nothing to hand over.
func (c cededFields) transferManifest(live *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	if len(c.transferred) == 0 {
		return nil, nil
	}
	o := objectReference(live)
	for _, path := range c.transferred {
		value, found, err := unstructured.NestedFieldCopy(live.Object, path...)
		if err != nil {
			return nil, fmt.Errorf("read field %s: %w", strings.Join(path, "."), err)
		}
		if !found {
			continue
		}
		if err := unstructured.SetNestedField(o.Object, value, path...); err != nil {
			return nil, fmt.Errorf("set field %s: %w", strings.Join(path, "."), err)
		}
	}
	return o, nil
}

// objectReference names a live object, this life of it, and nothing else.
func objectReference(live *unstructured.Unstructured) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{}}
	o.SetGroupVersionKind(live.GroupVersionKind())
	o.SetNamespace(live.GetNamespace())
	o.SetName(live.GetName())
	o.SetUID(live.GetUID())
	return o
}

// withoutAgentEntries is the managed fields without our entries, for an object that is let go.
func withoutAgentEntries(entries []metav1.ManagedFieldsEntry) []metav1.ManagedFieldsEntry {
	rest := []metav1.ManagedFieldsEntry{}
	for _, entry := range entries {
		if entry.Manager != v1alpha1.AgentFieldManager && entry.Manager != cededManager {
			rest = append(rest, entry)
		}
	}
	return rest
}
