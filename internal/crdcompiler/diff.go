// SPDX-License-Identifier: Apache-2.0

package crdcompiler

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/patchbay-cni/patchbay/internal/text"
)

// maxValue is how many bytes of a value a difference shows.
const maxValue = 120

// Diff compares a CRD with another, whatever the order of keys. It returns a line for each difference:
// what the other lacks (+), what only the other has (-), and values that differ (~).
func (c *CRD) Diff(other *CRD) []string { return diffObjects(other.Object, c.Object, nil) }

func diffObjects(was, is map[string]any, path *field.Path) []string {
	all := maps.Clone(was)
	maps.Copy(all, is)
	var lines []string
	for _, key := range slices.Sorted(maps.Keys(all)) {
		first, inFile := was[key]
		second, compiled := is[key]
		switch below := child(path, key); {
		case !inFile:
			lines = append(lines, fmt.Sprintf("+ %s: %s", below, format(second)))
		case !compiled:
			lines = append(lines, fmt.Sprintf("- %s: %s", below, format(first)))
		default:
			lines = append(lines, diffValues(first, second, below)...)
		}
	}
	return lines
}

func diffValues(was, is any, path *field.Path) []string {
	if reflect.DeepEqual(was, is) {
		return nil
	}
	objects1, ok1 := was.(map[string]any)
	objects2, ok2 := is.(map[string]any)
	if ok1 && ok2 {
		return diffObjects(objects1, objects2, path)
	}
	list1, ok1 := was.([]any)
	list2, ok2 := is.([]any)
	if !ok1 || !ok2 || len(list1) != len(list2) {
		return []string{fmt.Sprintf("~ %s: %s -> %s", path, format(was), format(is))}
	}
	var lines []string
	for i := range list1 {
		lines = append(lines, diffValues(list1[i], list2[i], path.Index(i))...)
	}
	return lines
}

func child(path *field.Path, key string) *field.Path {
	if path == nil {
		return field.NewPath(key)
	}
	return path.Child(key)
}

func format(value any) string {
	data, err := json.Marshal(value)
	if err != nil {
		return err.Error()
	}
	return text.Truncate(string(data), maxValue)
}
