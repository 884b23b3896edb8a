// SPDX-License-Identifier: Apache-2.0

// Package managedfields computes, from the managed fields of objects in a cluster, what the agent applied and
// which fields it leaves to other managers.
package managedfields

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// Set has managed fields in the format of FieldsV1: "f:name" is a field, `k:{"name":"c"}` a list item
// with these keys, "v:1" a list item with this value, "i:0" a list item by its index, and "." the object
// itself.
type Set map[string]any

// OfAgent returns the fields that the agent applied; nil when there are none.
func OfAgent(o *unstructured.Unstructured) Set {
	for _, entry := range o.GetManagedFields() {
		if entry.Manager == v1alpha1.AgentFieldManager && entry.Operation == metav1.ManagedFieldsOperationApply && entry.Subresource == "" {
			return parseFields(entry)
		}
	}
	return nil
}

func parseFields(entry metav1.ManagedFieldsEntry) Set {
	set := Set{}
	if entry.FieldsV1 == nil || json.Unmarshal(entry.FieldsV1.GetRawBytes(), &set) != nil {
		return nil // cannot be: the API server wrote it
	}
	return set
}

// Has tells whether the set contains the field, or a part of it.
func (s Set) Has(path []string) bool {
	if len(path) == 0 {
		return true
	}
	child, ok := s["f:"+path[0]]
	if !ok {
		return false
	}
	below, _ := child.(map[string]any)
	return len(path) == 1 || Set(below).Has(path[1:])
}

// Digest returns a digest of the set and of the object's values in it. It changes only when one of
// these fields is changed or removed.
func Digest(o *unstructured.Unstructured, set Set) string {
	raw, err := json.Marshal([]any{set, projectFields(set, o.Object)})
	if err != nil {
		return "" // cannot be: both were decoded from JSON
	}
	return fmt.Sprintf("%x", sha256.Sum256(raw))
}

// projectFields returns the part of value that the set contains.
func projectFields(set Set, value any) any {
	if len(set) == 0 {
		return value
	}
	part := map[string]any{}
	for key, below := range set {
		if key == "." {
			continue // that it is there follows from what is in it
		}
		sub, _ := below.(map[string]any)
		if child, ok := childByKey(key, value); ok {
			part[key] = projectFields(sub, child)
		}
	}
	return part
}

// childByKey returns the field or list item that a key of a fieldSet names.
func childByKey(key string, value any) (any, bool) {
	kind, rest, _ := strings.Cut(key, ":")
	switch v := value.(type) {
	case map[string]any:
		child, ok := v[rest]
		return child, ok && kind == "f"
	case []any:
		return listItemByKey(kind, rest, v)
	}
	return nil, false
}

func listItemByKey(kind, rest string, items []any) (any, bool) {
	if kind == "i" {
		i, err := strconv.Atoi(rest)
		if err != nil || i < 0 || i >= len(items) {
			return nil, false
		}
		return items[i], true
	}
	for _, item := range items {
		if itemMatchesKey(kind, rest, item) {
			return item, true
		}
	}
	return nil, false
}

// itemMatchesKey tells whether a list item has that value, or those keys.
func itemMatchesKey(kind, rest string, item any) bool {
	var want any
	if json.Unmarshal([]byte(rest), &want) != nil {
		return false
	}
	if kind == "v" {
		return fmt.Sprint(want) == fmt.Sprint(item)
	}
	keys, _ := want.(map[string]any)
	object, _ := item.(map[string]any)
	for name, value := range keys {
		if fmt.Sprint(object[name]) != fmt.Sprint(value) {
			return false
		}
	}
	return kind == "k" && object != nil
}
