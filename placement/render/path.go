// SPDX-License-Identifier: Apache-2.0

package render

import (
	"fmt"
	"strconv"
	"strings"
)

// step is one part of a path: a key of an object, or an index of a list.
type step struct {
	key   string
	index int // -1 for a key
}

// String is the step as paths have it.
func (s step) String() string {
	if s.index >= 0 {
		return "[" + strconv.Itoa(s.index) + "]"
	}
	return strconv.Quote(s.key)
}

// parsePath reads a path such as spec.template.spec.containers[0].image or
// metadata.annotations["example.com/a"]. The empty path is the object itself.
func parsePath(path string) ([]step, error) {
	var steps []step
	for rest := path; rest != ""; {
		s, left, err := nextStep(rest, len(steps) == 0)
		if err != nil {
			return nil, fmt.Errorf("path at %q: %w", rest, err)
		}
		steps, rest = append(steps, s), left
	}
	return steps, nil
}

// nextStep reads one step and returns what is left.
func nextStep(rest string, first bool) (step, string, error) {
	if inner, ok := strings.CutPrefix(rest, "["); ok {
		return bracket(inner)
	}
	if !first {
		var ok bool
		if rest, ok = strings.CutPrefix(rest, "."); !ok {
			return step{}, "", fmt.Errorf("want a dot or a bracket")
		}
	}
	end := strings.IndexAny(rest, ".[")
	if end < 0 {
		end = len(rest)
	}
	if end == 0 {
		return step{}, "", fmt.Errorf("want the name of a field")
	}
	return step{key: rest[:end], index: -1}, rest[end:], nil
}

// bracket reads an index or a quoted key up to the closing bracket.
func bracket(inner string) (step, string, error) {
	if quoted, err := strconv.QuotedPrefix(inner); err == nil {
		key, err := strconv.Unquote(quoted)
		left, ok := strings.CutPrefix(inner[len(quoted):], "]")
		if err != nil || !ok {
			return step{}, "", fmt.Errorf("want a closing bracket after %s", quoted)
		}
		return step{key: key, index: -1}, left, nil
	}
	digits, left, ok := strings.Cut(inner, "]")
	index, err := strconv.ParseUint(digits, 10, 16)
	if !ok || err != nil {
		return step{}, "", fmt.Errorf("want an index or a key in quotes in the brackets")
	}
	return step{index: int(index)}, left, nil
}
