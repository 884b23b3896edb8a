// SPDX-License-Identifier: Apache-2.0

package works

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

func decode(t *testing.T, text string) map[string]any {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		t.Fatal(err)
	}
	return m
}

// What is ours of an object, and so what another's change of it looks like.
func TestProjectFields(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason, set, object, want string
	}{
		"Field":   {"Others' fields are not looked at.", `{"f:a":{}}`, `{"a":1,"b":2}`, `{"f:a":1}`},
		"Missing": {"A field that was taken away is not there.", `{"f:a":{}}`, `{"b":2}`, `{}`},
		"Nested":  {"Only what is named within.", `{"f:a":{".":{},"f:x":{}}}`, `{"a":{"x":1,"y":2}}`, `{"f:a":{"f:x":1}}`},
		"Key": {"A list's item by its keys, wherever it stands.", `{"f:l":{"k:{\"name\":\"c\"}":{".":{},"f:v":{}}}}`,
			`{"l":[{"name":"d","v":1},{"name":"c","v":2}]}`, `{"f:l":{"k:{\"name\":\"c\"}":{"f:v":2}}}`},
		"TwoKeys": {"All keys count, numbers too.", `{"f:l":{"k:{\"port\":80,\"protocol\":\"TCP\"}":{"f:v":{}}}}`,
			`{"l":[{"port":80,"protocol":"UDP","v":1},{"port":80,"protocol":"TCP","v":2}]}`, `{"f:l":{"k:{\"port\":80,\"protocol\":\"TCP\"}":{"f:v":2}}}`},
		"Value":      {"A set's item by its value.", `{"f:l":{"v:\"b\"":{}}}`, `{"l":["a","b"]}`, `{"f:l":{"v:\"b\"":"b"}}`},
		"ValueGone":  {"One that was taken out.", `{"f:l":{"v:\"b\"":{}}}`, `{"l":["a"]}`, `{"f:l":{}}`},
		"Index":      {"An item by its place.", `{"f:l":{"i:1":{}}}`, `{"l":["a","b"]}`, `{"f:l":{"i:1":"b"}}`},
		"IndexGone":  {"Past the end.", `{"f:l":{"i:7":{}}}`, `{"l":["a"]}`, `{"f:l":{}}`},
		"OtherShape": {"A field that became something else.", `{"f:l":{"f:x":{}}}`, `{"l":"text"}`, `{"f:l":{}}`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := projectFields(decode(t, tc.set), decode(t, tc.object))
			if diff := cmp.Diff(any(decode(t, tc.want)), got); diff != "" {
				t.Errorf("%s\n-want +got\n%s", tc.reason, diff)
			}
		})
	}
}

func managed(t *testing.T, object string, owners map[string]string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{Object: decode(t, object)}
	var entries []metav1.ManagedFieldsEntry
	for manager, fields := range owners {
		entries = append(entries, metav1.ManagedFieldsEntry{
			Manager: manager, Operation: metav1.ManagedFieldsOperationApply, APIVersion: "v1", FieldsType: "FieldsV1",
			FieldsV1: metav1.NewFieldsV1(fields),
		})
	}
	o.SetManagedFields(entries)
	return o
}

// The digest changes with our fields, with nothing else, and when one is taken from us.
func TestDigest(t *testing.T) {
	t.Parallel()
	sum := func(object, ours string) string {
		o := managed(t, object, map[string]string{v1alpha1.AgentFieldManager: ours, "other": `{"f:b":{}}`})
		return fieldsDigest(o, agentFields(o))
	}
	base := sum(`{"metadata":{},"a":1,"b":2}`, `{"f:a":{}}`)
	if got := sum(`{"metadata":{},"a":1,"b":3}`, `{"f:a":{}}`); got != base {
		t.Error("another's field changed: so did the digest")
	}
	if got := sum(`{"metadata":{},"a":2,"b":2}`, `{"f:a":{}}`); got == base {
		t.Error("our field changed: the digest did not")
	}
	if got := sum(`{"metadata":{},"a":1,"b":2}`, `{}`); got == base {
		t.Error("our field is no longer ours: the digest did not change")
	}
}

// Which fields are left to others.
func TestFindCededFields(t *testing.T) {
	t.Parallel()
	const object = `{"metadata":{},"spec":{"replicas":3}}`
	ours, theirs := `{"f:spec":{"f:replicas":{}}}`, `{"f:spec":{"f:replicas":{}}}`
	replicas := []v1alpha1.FieldPath{"spec.replicas"}
	cases := map[string]struct {
		reason     string
		owners     map[string]string
		policy     v1alpha1.ApplyPolicy
		drop, hand int
	}{
		"Nothing":          {"No policy, nothing left.", map[string]string{v1alpha1.AgentFieldManager: ours, "hpa": theirs}, v1alpha1.ApplyPolicy{}, 0, 0},
		"YieldUnowned":     {"Nobody else has it: we keep it.", map[string]string{v1alpha1.AgentFieldManager: ours}, v1alpha1.ApplyPolicy{Yield: replicas}, 0, 0},
		"YieldOwned":       {"Another has it: we leave it.", map[string]string{v1alpha1.AgentFieldManager: ours, "hpa": theirs}, v1alpha1.ApplyPolicy{Yield: replicas}, 1, 0},
		"CreateOnly":       {"Nobody else has it: it is handed over first, else it were reset.", map[string]string{v1alpha1.AgentFieldManager: ours}, v1alpha1.ApplyPolicy{CreateOnly: replicas}, 1, 1},
		"CreateOnlyCeded":  {"Handed over already.", map[string]string{cededManager: theirs}, v1alpha1.ApplyPolicy{CreateOnly: replicas}, 1, 0},
		"CreateOnlyTheirs": {"Taken by another.", map[string]string{v1alpha1.AgentFieldManager: ours, "hpa": theirs}, v1alpha1.ApplyPolicy{CreateOnly: replicas}, 1, 0},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, err := findCededFields(managed(t, object, tc.owners), tc.policy)
			if err != nil || len(c.omitted) != tc.drop || len(c.transferred) != tc.hand {
				t.Errorf("%s\ngot %+v, %v; want %d dropped, %d handed over", tc.reason, c, err, tc.drop, tc.hand)
			}
		})
	}
}

func TestParseFieldPath(t *testing.T) {
	t.Parallel()
	cases := map[v1alpha1.FieldPath][]string{
		"spec.replicas": {"spec", "replicas"},
		`metadata.annotations["example.com/a.b"]`: {"metadata", "annotations", "example.com/a.b"},
		`data["a"].b`: {"data", "a", "b"},
		"":            nil,
		".a":          nil,
		`a["b`:        nil,
		"a[b]":        nil,
	}
	for path, want := range cases {
		got, err := parseFieldPath(path)
		if (err != nil) != (want == nil) {
			t.Errorf("%s: error %v", path, err)
		} else if want != nil && !cmp.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", path, got, want)
		}
	}
}
