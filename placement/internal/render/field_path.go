// SPDX-License-Identifier: Apache-2.0

package render

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// pathElement is one part of a path: a key of an object, or an index of a list.
type pathElement struct {
	key   string
	index int // -1 for a key
}

// String returns the element in the syntax of paths.
func (s pathElement) String() string {
	if s.index >= 0 {
		return "[" + strconv.Itoa(s.index) + "]"
	}
	return strconv.Quote(s.key)
}

// parsePath parses a path such as spec.template.spec.containers[0].image or
// metadata.annotations["example.com/a"]. The empty path is the object itself.
func parsePath(path string) ([]pathElement, error) {
	var steps []pathElement
	for rest := path; rest != ""; {
		s, left, err := parseElement(rest, len(steps) == 0)
		if err != nil {
			return nil, fmt.Errorf("path at %q: %w", rest, err)
		}
		steps, rest = append(steps, s), left
	}
	return steps, nil
}

// parseElement parses one element and returns the rest of the path.
func parseElement(rest string, first bool) (pathElement, string, error) {
	if inner, ok := strings.CutPrefix(rest, "["); ok {
		return parseBracket(inner)
	}
	if !first {
		var ok bool
		if rest, ok = strings.CutPrefix(rest, "."); !ok {
			return pathElement{}, "", fmt.Errorf("must continue with a dot or a bracket")
		}
	}
	end := strings.IndexAny(rest, ".[")
	if end < 0 {
		end = len(rest)
	}
	if end == 0 {
		return pathElement{}, "", fmt.Errorf("must have the name of a field")
	}
	return pathElement{key: rest[:end], index: -1}, rest[end:], nil
}

// parseBracket parses an index or a quoted key up to the closing bracket.
func parseBracket(inner string) (pathElement, string, error) {
	if quoted, err := strconv.QuotedPrefix(inner); err == nil {
		key, err := strconv.Unquote(quoted)
		left, ok := strings.CutPrefix(inner[len(quoted):], "]")
		if err != nil || !ok {
			return pathElement{}, "", fmt.Errorf("must have a closing bracket after %s", quoted)
		}
		return pathElement{key: key, index: -1}, left, nil
	}
	digits, left, ok := strings.Cut(inner, "]")
	index, err := strconv.ParseUint(digits, 10, 16)
	if !ok || err != nil {
		return pathElement{}, "", fmt.Errorf("must have an index or a key in quotes in the brackets")
	}
	return pathElement{index: int(index)}, left, nil
}

// editField changes the field at a path in a value, and returns the changed value. It creates missing objects
// and lists above the field; an index may be the one after the last.
func editField(at any, steps []pathElement, op v1alpha1.RuleOp, value any) (any, error) {
	if len(steps) == 0 {
		if op == v1alpha1.RuleMerge {
			return mergePatch(at, value)
		}
		return value, nil
	}
	s, rest := steps[0], steps[1:]
	if at == nil && op == v1alpha1.RuleRemove {
		return nil, nil
	}
	if s.index >= 0 {
		return editListItem(at, s, rest, op, value)
	}
	m, ok := at.(map[string]any)
	if !ok && at != nil {
		return nil, fmt.Errorf("the parent of %v must be an object", s)
	}
	if m == nil {
		m = map[string]any{}
	}
	below, has := m[s.key]
	if op == v1alpha1.RuleRemove && (len(rest) == 0 || !has) {
		delete(m, s.key)
		return m, nil
	}
	next, err := editField(below, rest, op, value)
	if err != nil {
		return nil, err
	}
	m[s.key] = next
	return m, nil
}

// editListItem is editField for a path that begins with an index.
func editListItem(at any, s pathElement, rest []pathElement, op v1alpha1.RuleOp, value any) (any, error) {
	list, ok := at.([]any)
	if !ok && at != nil {
		return nil, fmt.Errorf("the parent of %v must be a list", s)
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
		return nil, fmt.Errorf("index %d must be at most the length of the list, %d", s.index, len(list))
	}
	if s.index == len(list) {
		list = append(list, nil)
	}
	next, err := editField(list[s.index], rest, op, value)
	if err != nil {
		return nil, err
	}
	list[s.index] = next
	return list, nil
}

// mergePatch applies a JSON merge patch (RFC 7396).
func mergePatch(at, patch any) (any, error) {
	from, ok := patch.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("the value must be an object with op merge, and is %T", patch)
	}
	into, ok := at.(map[string]any)
	if !ok {
		into = map[string]any{}
	}
	for key, value := range from {
		if _, deeper := value.(map[string]any); deeper {
			merged, err := mergePatch(into[key], value)
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
