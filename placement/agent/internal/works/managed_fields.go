// SPDX-License-Identifier: Apache-2.0

package works

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

// fieldSet is managed fields as the API server writes them: "f:name" is a field,
// `k:{"name":"c"}` the item of a list with those keys, "v:1" an item that is a value,
// "i:0" one by its place, "." the thing itself.
type fieldSet map[string]any

// agentFields returns the fields that the agent applied; nil when there are none.
func agentFields(o *unstructured.Unstructured) fieldSet {
	for _, entry := range o.GetManagedFields() {
		if entry.Manager == v1alpha1.AgentFieldManager && entry.Operation == metav1.ManagedFieldsOperationApply && entry.Subresource == "" {
			return parseFields(entry)
		}
	}
	return nil
}

func parseFields(entry metav1.ManagedFieldsEntry) fieldSet {
	set := fieldSet{}
	if entry.FieldsV1 == nil || json.Unmarshal(entry.FieldsV1.GetRawBytes(), &set) != nil {
		return nil // the API server wrote it, so it can be read
	}
	return set
}

// has tells whether the set names the field, or something within it.
func (s fieldSet) has(path []string) bool {
	if len(path) == 0 {
		return true
	}
	child, ok := s["f:"+path[0]]
	if !ok {
		return false
	}
	below, _ := child.(map[string]any)
	return len(path) == 1 || fieldSet(below).has(path[1:])
}

// fieldsDigest says in few bytes which values the object has in those fields: it changes when
// one of them is changed or taken away, and only then.
func fieldsDigest(o *unstructured.Unstructured, set fieldSet) string {
	raw, err := json.Marshal([]any{set, projectFields(set, o.Object)})
	if err != nil {
		return "" // cannot be: both were decoded from JSON
	}
	return fmt.Sprintf("%x", sha256.Sum256(raw))
}

// projectFields returns the part of value that the set names.
func projectFields(set fieldSet, value any) any {
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

// childByKey follows one element of a path.
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

// itemMatchesKey tells whether a list's item has that value, or those keys.
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
