// SPDX-License-Identifier: Apache-2.0

package render

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// A parsed path, written as text, parses to the same path.
func FuzzParsePath(f *testing.F) {
	for _, seed := range []string{
		"", "spec.template.spec.containers[0].image", `metadata.annotations["example.com/a"]`, `["a"][0]["\x00"]`, "[65536]", "[0", "a..b", `["a`, "a]", "[+1]",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, path string) {
		steps, err := parsePath(path)
		if err != nil {
			return
		}
		var text strings.Builder
		for _, s := range steps {
			if s.index >= 0 {
				text.WriteString(s.String())
			} else {
				text.WriteString("[" + s.String() + "]")
			}
		}
		again, err := parsePath(text.String())
		if err != nil || !reflect.DeepEqual(steps, again) {
			t.Errorf("%q: parsed as %v, and %s as %v, %v", path, steps, text.String(), again, err)
		}
	})
}

// After any rule with a value, the object has the same identity and can be encoded as JSON. After an error it is
// unchanged.
func FuzzRule(f *testing.F) {
	for _, seed := range [][3]string{
		{"spec.replicas", "set", "3"}, {"spec.containers[0].image", "set", `"x"`}, {"spec.containers[1]", "set", "{}"},
		{"metadata", "merge", `{"labels": {"a": "b"}}`}, {"", "merge", `{"metadata": {"finalizers": ["a/b"]}}`}, {"metadata", "remove", ""},
		{"metadata.ownerReferences[0].uid", "set", `"1"`}, {"metadata.labels", "set", "null"}, {"spec", "remove", ""}, {"", "merge", "5"},
		{"metadata", "set", `{"name": "b"}`}, {`["metadata"]["name"]`, "set", `"b"`}, {"kind", "remove", ""}, {"", "merge", "null"}, {"[0]", "set", "1e999"},
	} {
		f.Add(seed[0], seed[1], seed[2])
	}
	f.Fuzz(func(t *testing.T, path, op, value string) {
		r := v1alpha1.Rule{Path: path, Op: v1alpha1.RuleOp(op)}
		if value != "" {
			if !json.Valid([]byte(value)) {
				return // the API server rejects such values
			}
			r.Value = &apiextensionsv1.JSON{Raw: []byte(value)}
		}
		c := v1alpha1.Customization{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "c"}, Spec: v1alpha1.CustomizationSpec{Rules: []v1alpha1.Rule{r}}}
		rules, _ := Compile([]v1alpha1.Customization{c})
		o := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "Pod",
			"metadata": map[string]any{
				"namespace": "team", "name": "a", "finalizers": []any{"example.com/a"}, "labels": map[string]any{"a": "b"},
				"ownerReferences": []any{map[string]any{"uid": "u"}},
			},
			"spec": map[string]any{"replicas": int64(1), "containers": []any{map[string]any{"name": "c"}}},
		}}
		before := o.DeepCopy()
		if err := rules.Apply(o, &v1alpha1.Cluster{}); err != nil {
			if diff := cmp.Diff(before.Object, o.Object); diff != "" {
				t.Errorf("%s %q %s: %v, and the identity of the object changed (-before +after):\n%s", op, path, value, err, diff)
			}
			return
		}
		if diff := cmp.Diff(immutableFields(before.Object), immutableFields(o.Object)); diff != "" {
			t.Errorf("%s %q %s (-before +after):\n%s", op, path, value, diff)
		}
		if _, err := json.Marshal(o.Object); err != nil {
			t.Errorf("%s %q %s: %v", op, path, value, err)
		}
	})
}

// Prune accepts any managed fields and ports of a Service, and keeps only the node ports that a client
// requested.
func FuzzPruneService(f *testing.F) {
	f.Add(`{"f:spec":{"f:ports":{"k:{\"port\":80,\"protocol\":\"TCP\"}":{"f:nodePort":{}}}}}`, `[{"port": 80, "nodePort": 30000}]`)
	f.Add(`{"f:spec":{"f:ports":{"k:{":{"f:nodePort":{}},"k:null":{"f:nodePort":1}}}}`, `[{"port": "80", "nodePort": 1}, 5, null]`)
	f.Add(`{"f:spec":5}`, `{}`)
	f.Add(`[]`, `[{"nodePort": 30000}]`)
	f.Fuzz(func(t *testing.T, fields, ports string) {
		var list any
		if !json.Valid([]byte(fields)) || json.Unmarshal([]byte(ports), &list) != nil {
			return
		}
		raw := &metav1.FieldsV1{}
		raw.SetRawBytes([]byte(fields))
		o := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "Service", "metadata": map[string]any{"name": "a"}, "spec": map[string]any{"ports": list},
		}}
		o.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "a", FieldsType: "FieldsV1", FieldsV1: raw}})
		owned := requestedNodePorts(o)
		Prune(o)
		left, _, _ := unstructured.NestedSlice(o.Object, "spec", "ports")
		for _, p := range left {
			if p, ok := p.(map[string]any); ok && p["nodePort"] != nil && !owned[portKey(p)] {
				t.Errorf("%s: %v keeps a node port that no client requested", fields, p)
			}
		}
	})
}
