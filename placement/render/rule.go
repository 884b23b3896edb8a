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

// rule changes one field.
type rule struct {
	path    string
	steps   []step
	op      v1alpha1.RuleOp
	value   any
	cost    uint64      // of value; that of a program is known when it has run
	program cel.Program // nil where value is given
}

// compile reads a Customization. Of one that is over its namespace's budget it reads only
// what it matches.
func (c *customization) compile(env *cel.Env, spec *v1alpha1.CustomizationSpec, over error) (err error) {
	if c.matcher, err = newMatcher(c.namespace, &spec.Match); err != nil {
		return c.wrong(-1, "", fmt.Errorf("spec.match: %w", err))
	}
	if over != nil {
		return c.wrong(-1, "", over)
	}
	for i := range spec.Rules {
		r, err := newRule(env, &spec.Rules[i])
		if err != nil {
			return c.wrong(i, spec.Rules[i].Path, err)
		}
		c.rules = append(c.rules, r)
	}
	return nil
}

// newRule reads one rule.
func newRule(env *cel.Env, from *v1alpha1.Rule) (rule, error) {
	r := rule{path: from.Path, op: from.Op}
	if r.op == "" {
		r.op = v1alpha1.RuleSet
	}
	var err error
	if r.steps, err = parsePath(from.Path); err != nil {
		return r, err
	}
	if len(r.steps) == 0 && r.op != v1alpha1.RuleMerge {
		return r, fmt.Errorf("op %s needs a path", r.op)
	}
	if field := fixedField(r.steps); field != "" {
		return r, fmt.Errorf("%s %s", field, fixedRule)
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
	r.value, r.cost = wholeNumbers(r.value), uint64(len(from.Value.Raw)/bytesPerCost)
	if field := fixedIn(r.steps, r.value); field != "" {
		return r, fmt.Errorf("value: %s %s", field, fixedRule)
	}
	return r, nil
}

// apply carries the rule out in place and returns what that cost.
func (r *rule) apply(object *unstructured.Unstructured, cluster *v1alpha1.Cluster) (cost uint64, err error) {
	value, cost := runtime.DeepCopyJSONValue(r.value), r.cost
	if r.program != nil {
		if value, cost, err = evaluate(r.program, object, cluster); errors.Is(err, errNothing) {
			return cost, nil
		} else if err != nil {
			return cost, err
		}
	}
	before := fixedFields(object.Object)
	root, err := edit(object.Object, r.steps, r.op, value)
	if err != nil {
		return cost, err
	}
	changed, ok := root.(map[string]any)
	if !ok {
		return cost, errors.New("it leaves no object")
	}
	object.Object = changed
	after := fixedFields(changed)
	for _, field := range slices.Sorted(maps.Keys(merged(before, after))) {
		if !reflect.DeepEqual(before[field], after[field]) {
			return cost, fmt.Errorf("%s %s", field, fixedRule)
		}
	}
	return cost, nil
}
