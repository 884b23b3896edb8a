// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"encoding/json"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// textOf is a text of an object.
func textOf(t *testing.T, o *unstructured.Unstructured, path ...string) string {
	t.Helper()
	s, _, err := unstructured.NestedString(o.Object, path...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// mustJSON is a value as JSON.
func mustJSON(t *testing.T, value any) []byte {
	t.Helper()
	raw, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}
