// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// Change is a field whose values differ.
type Change struct {
	// Field is the path, such as spec.template.spec.containers[0].image.
	Field string
	// Before and After are the values as JSON; "" where the field is absent.
	Before, After string
}

// maxValueLength is the length to which printed values are cut.
const maxValueLength = 80

// String prints the change.
func (c Change) String() string {
	switch {
	case c.Before == "":
		return fmt.Sprintf("%s: %s is added", c.Field, c.After)
	case c.After == "":
		return fmt.Sprintf("%s: %s is removed", c.Field, c.Before)
	}
	return fmt.Sprintf("%s: %s becomes %s", c.Field, c.Before, c.After)
}

// Adoption returns what the adoption changes in a live object, which is then as in after: the agent's label and
// annotations, and what the API server keeps itself, are no changes. Values of Secrets are not in it.
func Adoption(live, after *unstructured.Unstructured) []Change {
	return compare(secretsOf(live), withoutMarks(live).Object, withoutMarks(after).Object)
}

// withoutMarks returns an object without the marks of an agent, and without fields that each write changes.
func withoutMarks(o *unstructured.Unstructured) *unstructured.Unstructured {
	o = o.DeepCopy()
	removeMarks(o)
	annotations := o.GetAnnotations()
	delete(annotations, v1alpha1.SourceUIDAnnotation)
	delete(annotations, v1alpha1.HubUIDAnnotation)
	if len(annotations) == 0 {
		unstructured.RemoveNestedField(o.Object, "metadata", "annotations")
	} else {
		o.SetAnnotations(annotations)
	}
	for _, field := range []string{"managedFields", "resourceVersion", "generation"} {
		unstructured.RemoveNestedField(o.Object, "metadata", field)
	}
	return o
}

// Differences returns how the object at the hub differs from the live one, in what their user writes. Values of
// Secrets are not in it.
func Differences(live, atHub *unstructured.Unstructured) []Change {
	return compare(secretsOf(live), Comparable(live), Comparable(atHub))
}

// UserChanges returns what has changed in a live object since it was read before, except the status and what
// controllers write in the metadata. Values of Secrets are not in it.
func UserChanges(before, now *unstructured.Unstructured) []Change {
	b, n := withoutMarks(before), withoutMarks(now)
	for _, o := range []*unstructured.Unstructured{b, n} {
		unstructured.RemoveNestedField(o.Object, "status")
		metadata, _ := o.Object["metadata"].(map[string]any)
		for _, field := range []string{"annotations", "finalizers", "ownerReferences", "deletionTimestamp", "deletionGracePeriodSeconds"} {
			delete(metadata, field)
		}
	}
	return compare(secretsOf(before), b.Object, n.Object)
}

// secretsOf returns the fields of an object whose values must not be printed.
func secretsOf(o *unstructured.Unstructured) []string {
	if o.GroupVersionKind().GroupKind() == (schema.GroupKind{Kind: "Secret"}) {
		return []string{"data", "stringData"}
	}
	return nil
}

// compare lists the differences of two objects, in the order of their fields.
func compare(secret []string, before, after map[string]any) []Change {
	var found []Change
	var walk func(path string, before, after any, hidden bool)
	walk = func(path string, before, after any, hidden bool) {
		if reflect.DeepEqual(before, after) {
			return
		}
		b, isMap := before.(map[string]any)
		a, isMapToo := after.(map[string]any)
		if isMap && isMapToo {
			keys := slices.Collect(maps.Keys(b))
			keys = slices.AppendSeq(keys, maps.Keys(a))
			slices.Sort(keys)
			for _, key := range slices.Compact(keys) {
				at := key
				if path != "" {
					at = path + "." + key
				}
				walk(at, b[key], a[key], hidden || path == "" && slices.Contains(secret, key))
			}
			return
		}
		bl, isList := before.([]any)
		al, isListToo := after.([]any)
		if isList && isListToo && len(bl) == len(al) {
			for i := range bl {
				walk(fmt.Sprintf("%s[%d]", path, i), bl[i], al[i], hidden)
			}
			return
		}
		found = append(found, Change{Field: path, Before: printed(before, hidden), After: printed(after, hidden)})
	}
	walk("", before, after, false)
	return found
}

// printed returns a value as JSON, cut to a length for one line.
func printed(value any, hidden bool) string {
	if value == nil {
		return ""
	}
	if hidden {
		return "(a hidden value)"
	}
	raw, err := json.Marshal(value)
	if err != nil {
		return fmt.Sprint(value)
	}
	text := []rune(string(raw))
	if len(text) > maxValueLength {
		return string(text[:maxValueLength]) + "..."
	}
	return string(text)
}
