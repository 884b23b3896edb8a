// SPDX-License-Identifier: Apache-2.0

package render

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// object decodes an object from YAML, with the number types of the API server's JSON.
func object(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	raw, err := yaml.YAMLToJSONStrict([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(raw); err != nil {
		t.Fatal(err)
	}
	return u
}

// field returns the value at a path of an object; nil when there is none.
func field(t *testing.T, o *unstructured.Unstructured, path string) any {
	t.Helper()
	steps, err := parsePath(path)
	if err != nil {
		t.Fatal(err)
	}
	at := any(o.Object)
	for _, s := range steps {
		if list, ok := at.([]any); ok && s.index >= 0 && s.index < len(list) {
			at = list[s.index]
		} else if m, ok := at.(map[string]any); ok && s.index < 0 {
			at = m[s.key]
		} else {
			return nil
		}
	}
	return at
}
