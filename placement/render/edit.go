// SPDX-License-Identifier: Apache-2.0

package render

import (
	"fmt"
	"maps"
	"slices"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// edit changes the field at a path below a value and returns the value as it is then.
// What is missing above the field is made; an index may be the one after the last.
func edit(at any, steps []step, op v1alpha1.RuleOp, value any) (any, error) {
	if len(steps) == 0 {
		if op == v1alpha1.RuleMerge {
			return merge(at, value)
		}
		return value, nil
	}
	s, rest := steps[0], steps[1:]
	if at == nil && op == v1alpha1.RuleRemove {
		return nil, nil
	}
	if s.index >= 0 {
		return editList(at, s, rest, op, value)
	}
	m, ok := at.(map[string]any)
	if !ok && at != nil {
		return nil, fmt.Errorf("what is above %v is no object", s)
	}
	if m == nil {
		m = map[string]any{}
	}
	below, has := m[s.key]
	if op == v1alpha1.RuleRemove && (len(rest) == 0 || !has) {
		delete(m, s.key)
		return m, nil
	}
	next, err := edit(below, rest, op, value)
	if err != nil {
		return nil, err
	}
	m[s.key] = next
	return m, nil
}

// editList is edit for a step that is an index.
func editList(at any, s step, rest []step, op v1alpha1.RuleOp, value any) (any, error) {
	list, ok := at.([]any)
	if !ok && at != nil {
		return nil, fmt.Errorf("what is above %v is no list", s)
	}
	if op == v1alpha1.RuleRemove {
		if s.index >= len(list) {
			return list, nil
		}
		if len(rest) == 0 {
			return slices.Delete(list, s.index, s.index+1), nil
		}
	}
	if s.index > len(list) {
		return nil, fmt.Errorf("index %d of a list of %d", s.index, len(list))
	}
	if s.index == len(list) {
		list = append(list, nil)
	}
	next, err := edit(list[s.index], rest, op, value)
	if err != nil {
		return nil, err
	}
	list[s.index] = next
	return list, nil
}

// merge is JSON merge patch (RFC 7396) of one object into another.
func merge(at, patch any) (any, error) {
	from, ok := patch.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("op merge takes an object, and the value is %T", patch)
	}
	into, ok := at.(map[string]any)
	if !ok {
		into = map[string]any{}
	}
	for key, value := range from {
		if _, deeper := value.(map[string]any); deeper {
			merged, err := merge(into[key], value)
			if err != nil {
				return nil, err
			}
			value = merged
		}
		into[key] = value
	}
	maps.DeleteFunc(into, func(key string, _ any) bool { value, given := from[key]; return given && value == nil })
	return into, nil
}
