// SPDX-License-Identifier: Apache-2.0

package render

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
)

// fixedRule is the rule of fixed fields, for messages that begin with the field.
const fixedRule = "must stay as it is: rules may change labels and annotations in metadata, and neither apiVersion nor kind"

// fixedFields returns the fields that no rule may change, by path: what makes an object
// this object, and what decides how long it lives. An owner that does not exist lets the
// cluster's garbage collector delete the object; a finalizer keeps it, and its namespace,
// for ever.
func fixedFields(object map[string]any) map[string]any {
	fixed := map[string]any{"apiVersion": object["apiVersion"], "kind": object["kind"]}
	meta, isObject := object["metadata"].(map[string]any)
	if !isObject {
		return fixed // and so without the name that it had
	}
	for key, value := range meta {
		if !freeInMetadata(key) {
			fixed["metadata."+key] = runtime.DeepCopyJSONValue(value)
		}
	}
	return fixed
}

func freeInMetadata(key string) bool { return key == "labels" || key == "annotations" }

func merged(a, b map[string]any) map[string]any {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}

// fixedField returns the fixed field that a path leads to, or into; "" for others. What
// is above fixed fields may be changed as long as they are not.
func fixedField(steps []step) string {
	switch {
	case len(steps) == 0:
		return ""
	case steps[0].key == "apiVersion", steps[0].key == "kind":
		return steps[0].key
	case steps[0].key == "metadata" && len(steps) > 1 && !freeInMetadata(steps[1].key):
		return "metadata." + steps[1].key
	}
	return ""
}

// fixedIn returns the first fixed field that a value for a path has and that no rendered
// object has: name, namespace, apiVersion and kind may be repeated in a patch, and are
// compared when it is carried out.
func fixedIn(steps []step, value any) string {
	fields, isObject := value.(map[string]any)
	if !isObject || len(steps) > 1 || len(steps) == 1 && steps[0].key != "metadata" {
		return ""
	}
	if len(steps) == 0 {
		fields, _ = fields["metadata"].(map[string]any)
	}
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		if !freeInMetadata(key) && key != "name" && key != "namespace" {
			return "metadata." + key
		}
	}
	return ""
}
