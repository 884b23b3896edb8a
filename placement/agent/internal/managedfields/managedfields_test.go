// SPDX-License-Identifier: Apache-2.0

package managedfields

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

// projectFields returns only the fields in the set.
func TestProjectFields(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason, set, object, want string
	}{
		"Field":   {"Fields of others are left out.", `{"f:a":{}}`, `{"a":1,"b":2}`, `{"f:a":1}`},
		"Missing": {"A removed field is left out.", `{"f:a":{}}`, `{"b":2}`, `{}`},
		"Nested":  {"Only the named fields of an object are in the result.", `{"f:a":{".":{},"f:x":{}}}`, `{"a":{"x":1,"y":2}}`, `{"f:a":{"f:x":1}}`},
		"Key": {"A list item is found by its keys, at any index.", `{"f:l":{"k:{\"name\":\"c\"}":{".":{},"f:v":{}}}}`,
			`{"l":[{"name":"d","v":1},{"name":"c","v":2}]}`, `{"f:l":{"k:{\"name\":\"c\"}":{"f:v":2}}}`},
		"TwoKeys": {"All keys of an item must match, also numbers.", `{"f:l":{"k:{\"port\":80,\"protocol\":\"TCP\"}":{"f:v":{}}}}`,
			`{"l":[{"port":80,"protocol":"UDP","v":1},{"port":80,"protocol":"TCP","v":2}]}`, `{"f:l":{"k:{\"port\":80,\"protocol\":\"TCP\"}":{"f:v":2}}}`},
		"Value":      {"An item of a set is found by its value.", `{"f:l":{"v:\"b\"":{}}}`, `{"l":["a","b"]}`, `{"f:l":{"v:\"b\"":"b"}}`},
		"ValueGone":  {"A removed item of a set is left out.", `{"f:l":{"v:\"b\"":{}}}`, `{"l":["a"]}`, `{"f:l":{}}`},
		"Index":      {"An item may be named by its index.", `{"f:l":{"i:1":{}}}`, `{"l":["a","b"]}`, `{"f:l":{"i:1":"b"}}`},
		"IndexGone":  {"An index after the end is left out.", `{"f:l":{"i:7":{}}}`, `{"l":["a"]}`, `{"f:l":{}}`},
		"OtherShape": {"A field of another type is left out.", `{"f:l":{"f:x":{}}}`, `{"l":"text"}`, `{"f:l":{}}`},
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

// The digest changes only when one of the agent's fields changes, or the agent loses one.
func TestDigest(t *testing.T) {
	t.Parallel()
	sum := func(object, agents string) string {
		o := managed(t, object, map[string]string{v1alpha1.AgentFieldManager: agents, "other": `{"f:b":{}}`})
		return Digest(o, OfAgent(o))
	}
	base := sum(`{"metadata":{},"a":1,"b":2}`, `{"f:a":{}}`)
	if got := sum(`{"metadata":{},"a":1,"b":3}`, `{"f:a":{}}`); got != base {
		t.Error("the digest changed with a field of another manager")
	}
	if got := sum(`{"metadata":{},"a":2,"b":2}`, `{"f:a":{}}`); got == base {
		t.Error("the digest did not change with the agent's field")
	}
	if got := sum(`{"metadata":{},"a":1,"b":2}`, `{}`); got == base {
		t.Error("the digest did not change when the agent lost its field")
	}
}

// The agent leaves the fields of createOnly, and those of yield with another owner, to others.
func TestFindCededFields(t *testing.T) {
	t.Parallel()
	const object = `{"metadata":{},"spec":{"replicas":3}}`
	agents, others := `{"f:spec":{"f:replicas":{}}}`, `{"f:spec":{"f:replicas":{}}}`
	replicas := []v1alpha1.FieldPath{"spec.replicas"}
	cases := map[string]struct {
		reason               string
		owners               map[string]string
		policy               v1alpha1.ApplyPolicy
		omitted, transferred int
	}{
		"Nothing":          {"Without a policy the agent keeps its fields.", map[string]string{v1alpha1.AgentFieldManager: agents, "hpa": others}, v1alpha1.ApplyPolicy{}, 0, 0},
		"YieldUnowned":     {"Without another owner the agent keeps the field.", map[string]string{v1alpha1.AgentFieldManager: agents}, v1alpha1.ApplyPolicy{Yield: replicas}, 0, 0},
		"YieldOwned":       {"With another owner the agent omits the field.", map[string]string{v1alpha1.AgentFieldManager: agents, "hpa": others}, v1alpha1.ApplyPolicy{Yield: replicas}, 1, 0},
		"YieldCeded":       {"The replicas of a move are left to the autoscaler that comes.", map[string]string{CededManager: others}, v1alpha1.ApplyPolicy{Yield: replicas}, 1, 0},
		"YieldTakenBack":   {"The agent has applied them again since.", map[string]string{v1alpha1.AgentFieldManager: agents, CededManager: others}, v1alpha1.ApplyPolicy{Yield: replicas}, 0, 0},
		"CreateOnly":       {"Without another owner the field must be transferred, because else it would be removed.", map[string]string{v1alpha1.AgentFieldManager: agents}, v1alpha1.ApplyPolicy{CreateOnly: replicas}, 1, 1},
		"CreateOnlyCeded":  {"The field was transferred before.", map[string]string{CededManager: others}, v1alpha1.ApplyPolicy{CreateOnly: replicas}, 1, 0},
		"CreateOnlyTheirs": {"Another owner keeps the field.", map[string]string{v1alpha1.AgentFieldManager: agents, "hpa": others}, v1alpha1.ApplyPolicy{CreateOnly: replicas}, 1, 0},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, err := FindCeded(managed(t, object, tc.owners), tc.policy)
			if err != nil || len(c.Omitted) != tc.omitted || len(c.transferred) != tc.transferred {
				t.Errorf("%s\ngot %+v, %v; want %d omitted, %d transferred", tc.reason, c, err, tc.omitted, tc.transferred)
			}
		})
	}
}

// The agent takes replicas back that it left to an autoscaler, but never those that another manager has set.
func TestTakeBackReplicas(t *testing.T) {
	t.Parallel()
	const object, field = `{"metadata":{},"spec":{"replicas":3}}`, `{"f:spec":{"f:replicas":{}}}`
	for name, tc := range map[string]struct {
		reason  string
		owners  map[string]string
		ok      bool
		omitted int
	}{
		"Ceded":      {"No autoscaler has come.", map[string]string{CededManager: field}, true, 0},
		"TakenBack":  {"The agent has it already, and the value must follow.", map[string]string{v1alpha1.AgentFieldManager: field, CededManager: field}, true, 0},
		"Autoscaled": {"An autoscaler has set it.", map[string]string{"hpa": field}, false, 1},
		"Both":       {"An autoscaler wants the same number.", map[string]string{CededManager: field, "hpa": field}, false, 1},
		"Agent":      {"It was never left.", map[string]string{v1alpha1.AgentFieldManager: field}, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			live := managed(t, object, tc.owners)
			c, err := FindCeded(live, v1alpha1.ApplyPolicy{Yield: []v1alpha1.FieldPath{"spec.replicas"}})
			if err != nil {
				t.Fatal(err)
			}
			if rest, ok := c.TakeBackReplicas(live); ok != tc.ok || len(rest.Omitted) != tc.omitted {
				t.Errorf("%s\ngot %+v, %t; want %d omitted, %t", tc.reason, rest, ok, tc.omitted, tc.ok)
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
