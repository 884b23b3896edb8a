// SPDX-License-Identifier: Apache-2.0

package managedfields

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// Other clients in the cluster can write any managed fields. The digest depends only on the fields in the set,
// and a ceded path is omitted.
func FuzzManagedFields(f *testing.F) {
	f.Add(`{"f:spec":{"f:replicas":{}}}`, `{"spec":{"replicas":3}}`, "spec.replicas")
	f.Add(`{"f:l":{"k:{\"name\":\"c\"}":{".":{},"f:v":{}}}}`, `{"l":[{"name":"c","v":2}]}`, "l")
	f.Add(`{"f:l":{"v:\"b\"":{},"i:1":{},"i:-1":{},"v:{":{},"k:[]":{},"x":{}}}`, `{"l":["a","b",null]}`, `l["b"]`)
	f.Add(`{"f:a":{"f:b":{}}}`, `{"a":"text"}`, "a.b")
	f.Add(`{"f:a":1,"":[],".":{}}`, `{"a":{"b":{}}}`, "a.b")
	f.Add(`[]`, `{}`, `a["b`)
	f.Fuzz(func(t *testing.T, fields, object, path string) {
		// The API server ensures that both are JSON, and that an object has a kind.
		live := &unstructured.Unstructured{}
		if !json.Valid([]byte(fields)) || json.Unmarshal([]byte(object), &live.Object) != nil || live.Object == nil {
			return
		}
		entry := func(manager string) metav1.ManagedFieldsEntry {
			raw := &metav1.FieldsV1{}
			raw.SetRawBytes([]byte(fields))
			return metav1.ManagedFieldsEntry{Manager: manager, Operation: metav1.ManagedFieldsOperationApply, FieldsType: "FieldsV1", FieldsV1: raw}
		}
		delete(live.Object, "metadata")
		live.SetAPIVersion("v1")
		live.SetKind("Thing")
		live.SetManagedFields([]metav1.ManagedFieldsEntry{entry(v1alpha1.AgentFieldManager)})

		set := OfAgent(live)
		copied := live.DeepCopy()
		copied.Object["patchbayFuzz"] = "not in the set"
		if _, named := set["f:patchbayFuzz"]; !named && len(set) > 0 && Digest(live, set) != Digest(copied, set) {
			t.Errorf("%s of %s: a field that is not in the set changes the digest", fields, object)
		}
		c, err := FindCeded(live, v1alpha1.ApplyPolicy{CreateOnly: []v1alpha1.FieldPath{v1alpha1.FieldPath(path)}})
		if err != nil {
			return
		}
		if len(c.Omitted) != 1 {
			t.Errorf("%q: omitted %v, want one path", path, c.Omitted)
		}
		before := live.DeepCopy()
		if _, err := c.TransferManifest(live); err == nil && !slices.Equal(slices.Sorted(maps.Keys(before.Object)), slices.Sorted(maps.Keys(live.Object))) {
			t.Errorf("%q: transferManifest changed the object", path)
		}
	})
}

// A path of names without dots, brackets and quotes parses to the same names again.
func FuzzParseFieldPath(f *testing.F) {
	for _, seed := range []string{"spec.replicas", `metadata.annotations["example.com/a"]`, `a["b"].c`, "a..b", ".", `["`, `[""]`, "a.", "a[0]"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, path string) {
		parts, err := parseFieldPath(v1alpha1.FieldPath(path))
		if err != nil || slices.ContainsFunc(parts, func(p string) bool { return p == "" || strings.ContainsAny(p, `.["]`) }) {
			return
		}
		again, err := parseFieldPath(v1alpha1.FieldPath(strings.Join(parts, ".")))
		if err != nil || !slices.Equal(parts, again) {
			t.Errorf("%q: parsed as %q, and these as %q, %v", path, parts, again, err)
		}
	})
}
