// SPDX-License-Identifier: Apache-2.0

package managedfields

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// CededManager is the field manager of fields that the agent set once and leaves to others: the API server
// would remove a field that loses its last owner.
const CededManager = v1alpha1.AgentFieldManager + "-ceded"

// CededFields are the fields of a manifest that the agent leaves to others.
type CededFields struct {
	// Omitted are the fields that the agent does not apply.
	Omitted [][]string
	// transferred are the omitted fields that only the agent owns: CededManager gets them first.
	transferred [][]string
}

// FindCeded returns the fields of a live object that the agent leaves to others: those of createOnly,
// and those of yield that another manager owns. A field that the agent has taken back from CededManager is its own.
func FindCeded(live *unstructured.Unstructured, policy v1alpha1.ApplyPolicy) (CededFields, error) {
	var c CededFields
	for i, list := range [][]v1alpha1.FieldPath{policy.CreateOnly, policy.Yield} {
		for _, field := range list {
			path, err := parseFieldPath(field)
			if err != nil {
				return c, err
			}
			othersOwn := ownedByOthers(live, path)
			createOnly := i == 0
			isTakenBack := OfAgent(live).Has(path) && !ownedByOthers(live, path, CededManager)
			if createOnly || othersOwn && !isTakenBack {
				c.Omitted = append(c.Omitted, path)
			}
			if createOnly && !othersOwn && OfAgent(live).Has(path) {
				c.transferred = append(c.transferred, path)
			}
		}
	}
	return c, nil
}

// OmitsReplicas tells whether the agent leaves spec.replicas to others.
func (c CededFields) OmitsReplicas() bool {
	return slices.ContainsFunc(c.Omitted, func(path []string) bool { return slices.Equal(path, []string{"spec", "replicas"}) })
}

// TakeBackReplicas returns the fields without spec.replicas if no manager but CededManager has it of the agent, or
// shares it with the agent: no autoscaler has set it, and the agent may apply it again. Ok tells whether that is so.
func (c CededFields) TakeBackReplicas(live *unstructured.Unstructured) (rest CededFields, ok bool) {
	path := []string{"spec", "replicas"}
	if !ownedByOthers(live, path) || ownedByOthers(live, path, CededManager) {
		return c, false
	}
	c.Omitted = slices.DeleteFunc(slices.Clone(c.Omitted), func(omitted []string) bool { return slices.Equal(omitted, path) })
	return c, true
}

// parseFieldPath parses a FieldPath into names and keys.
func parseFieldPath(path v1alpha1.FieldPath) ([]string, error) {
	var parts []string
	for rest := string(path); rest != ""; {
		if inner, ok := strings.CutPrefix(rest, `["`); ok {
			key, after, ok := strings.Cut(inner, `"]`)
			if !ok {
				return nil, fmt.Errorf("field path %q: the key must end with \"]", path)
			}
			parts, rest = append(parts, key), strings.TrimPrefix(after, ".")
			continue
		}
		end := strings.IndexAny(rest, ".[")
		if end < 0 {
			end = len(rest)
		}
		if end == 0 {
			return nil, fmt.Errorf("field path %q: each part must have a name", path)
		}
		parts = append(parts, rest[:end])
		rest = strings.TrimPrefix(rest[end:], ".")
	}
	if len(parts) == 0 {
		return nil, fmt.Errorf("field path %q must not be empty", path)
	}
	return parts, nil
}

// ownedByOthers tells whether a manager other than the agent, and than those of but, owns the field.
func ownedByOthers(o *unstructured.Unstructured, path []string, but ...string) bool {
	for _, entry := range o.GetManagedFields() {
		isOther := entry.Manager != v1alpha1.AgentFieldManager && !slices.Contains(but, entry.Manager)
		if isOther && parseFields(entry).Has(path) {
			return true
		}
	}
	return false
}

// TransferManifest returns the manifest with which CededManager gets the transferred fields, with their
// present values; nil without such fields.
func (c CededFields) TransferManifest(live *unstructured.Unstructured) (*unstructured.Unstructured, error) {
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

// objectReference returns a manifest with the identity of a live object only, with its UID.
func objectReference(live *unstructured.Unstructured) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{}}
	o.SetGroupVersionKind(live.GroupVersionKind())
	o.SetNamespace(live.GetNamespace())
	o.SetName(live.GetName())
	o.SetUID(live.GetUID())
	return o
}

// WithoutAgent returns the managed fields without the agent's entries, for an object that it releases.
func WithoutAgent(entries []metav1.ManagedFieldsEntry) []metav1.ManagedFieldsEntry {
	rest := []metav1.ManagedFieldsEntry{}
	for _, entry := range entries {
		if entry.Manager != v1alpha1.AgentFieldManager && entry.Manager != CededManager {
			rest = append(rest, entry)
		}
	}
	return rest
}
