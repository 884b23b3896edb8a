// SPDX-License-Identifier: Apache-2.0

package render

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/google/cel-go/cel"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// rule is a compiled rule of a Customization.
type rule struct {
	path     string
	elements []pathElement
	op       v1alpha1.RuleOp
	value    any
	cost     uint64      // of value; the cost of a program is known after it has run
	program  cel.Program // nil for a rule with a value
}

// newRule compiles a rule.
func newRule(env *cel.Env, from *v1alpha1.Rule) (rule, error) {
	r := rule{path: from.Path, op: from.Op}
	if r.op == "" {
		r.op = v1alpha1.RuleSet
	}
	var err error
	if r.elements, err = parsePath(from.Path); err != nil {
		return r, err
	}
	if len(r.elements) == 0 && r.op != v1alpha1.RuleMerge {
		return r, fmt.Errorf("the path must not be empty with op %s", r.op)
	}
	if field := immutableFieldAt(r.elements); field != "" {
		return r, fmt.Errorf("%s %s", field, immutableFieldRule)
	}
	switch {
	case r.op == v1alpha1.RuleRemove && from.CEL == "" && from.Value == nil:
		return r, nil
	case r.op != v1alpha1.RuleSet && r.op != v1alpha1.RuleMerge, (from.CEL == "") == (from.Value == nil):
		return r, fmt.Errorf("op %q: give either cel or value with set or merge, and neither of them with remove", r.op)
	case from.CEL != "":
		r.program, err = compileCEL(env, from.CEL)
		return r, err
	}
	if err := json.Unmarshal(from.Value.Raw, &r.value); err != nil {
		return r, fmt.Errorf("read value: %w", err)
	}
	r.value, r.cost = integersFromFloats(r.value), uint64(len(from.Value.Raw)/bytesPerCost)
	if field := immutableFieldIn(r.elements, r.value); field != "" {
		return r, fmt.Errorf("value: %s %s", field, immutableFieldRule)
	}
	return r, nil
}

// apply applies the rule in place and returns its cost.
func (r *rule) apply(object *unstructured.Unstructured, cluster *v1alpha1.Cluster) (cost uint64, err error) {
	value, cost := runtime.DeepCopyJSONValue(r.value), r.cost
	if r.program != nil {
		if value, cost, err = evaluateCEL(r.program, object, cluster); errors.Is(err, errNoValue) {
			return cost, nil
		} else if err != nil {
			return cost, err
		}
	}
	before := immutableFields(object.Object)
	root, err := editField(object.Object, r.elements, r.op, value)
	if err != nil {
		return cost, err
	}
	changed, ok := root.(map[string]any)
	if !ok {
		return cost, errors.New("the result must be an object")
	}
	object.Object = changed
	after := immutableFields(changed)
	for _, field := range slices.Sorted(maps.Keys(mergeMaps(before, after))) {
		if !reflect.DeepEqual(before[field], after[field]) {
			return cost, fmt.Errorf("%s %s", field, immutableFieldRule)
		}
	}
	return cost, nil
}

// immutableFieldRule is the rule for immutable fields, for messages that begin with the field.
const immutableFieldRule = "must stay as it is: rules may change labels and annotations in metadata, and neither apiVersion nor kind"

// immutableFields returns the fields that no rule may change, by path: the identity of the object, and the
// fields that decide about its deletion. The cluster's garbage collector would delete an object with an
// owner that does not exist, and a finalizer would block its deletion, and that of its namespace, forever.
func immutableFields(object map[string]any) map[string]any {
	immutable := map[string]any{"apiVersion": object["apiVersion"], "kind": object["kind"]}
	meta, isObject := object["metadata"].(map[string]any)
	if !isObject {
		return immutable // the name is missing, which is a change
	}
	for key, value := range meta {
		if !isMutableMetadata(key) {
			immutable["metadata."+key] = runtime.DeepCopyJSONValue(value)
		}
	}
	return immutable
}

func isMutableMetadata(key string) bool { return key == "labels" || key == "annotations" }

func mergeMaps(a, b map[string]any) map[string]any {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}

// immutableFieldAt returns the immutable field that a path names or is in; "" for other paths. A rule may
// change a parent of immutable fields if these stay the same.
func immutableFieldAt(steps []pathElement) string {
	switch {
	case len(steps) == 0:
		return ""
	case steps[0].key == "apiVersion", steps[0].key == "kind":
		return steps[0].key
	case steps[0].key == "metadata" && len(steps) > 1 && !isMutableMetadata(steps[1].key):
		return "metadata." + steps[1].key
	}
	return ""
}

// immutableFieldIn returns the first immutable field in a value for a path; "" for none. It ignores name,
// namespace, apiVersion and kind, which a patch may repeat: apply compares them.
func immutableFieldIn(steps []pathElement, value any) string {
	fields, isObject := value.(map[string]any)
	if !isObject || len(steps) > 1 || len(steps) == 1 && steps[0].key != "metadata" {
		return ""
	}
	if len(steps) == 0 {
		fields, _ = fields["metadata"].(map[string]any)
	}
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		if !isMutableMetadata(key) && key != "name" && key != "namespace" {
			return "metadata." + key
		}
	}
	return ""
}
