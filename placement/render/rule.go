// SPDX-License-Identifier: Apache-2.0

package render

import (
	"encoding/json"
	"errors"
	"fmt"

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
	program cel.Program // nil where value is given
}

// compile reads a Customization.
func (c *customization) compile(env *cel.Env, spec *v1alpha1.CustomizationSpec) (err error) {
	if c.matcher, err = newMatcher(c.namespace, &spec.Match); err != nil {
		return c.wrong(-1, "", err)
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
	r.value = wholeNumbers(r.value)
	return r, nil
}

// apply carries the rule out in place.
func (r *rule) apply(object *unstructured.Unstructured, cluster *v1alpha1.Cluster) error {
	value := runtime.DeepCopyJSONValue(r.value)
	if r.program != nil {
		var err error
		if value, err = evaluate(r.program, object, cluster); errors.Is(err, errNothing) {
			return nil
		} else if err != nil {
			return err
		}
	}
	before := identityOf(object)
	root, err := edit(object.Object, r.steps, r.op, value)
	if err != nil {
		return err
	}
	changed, ok := root.(map[string]any)
	if !ok {
		return errors.New("it leaves no object")
	}
	object.Object = changed
	if after := identityOf(object); after != before {
		return fmt.Errorf("it makes %v of %v: apiVersion, kind, metadata.namespace and metadata.name stay", after, before)
	}
	return nil
}

// identityOf is what makes an object that object.
func identityOf(object *unstructured.Unstructured) [4]string {
	return [4]string{object.GetAPIVersion(), object.GetKind(), object.GetNamespace(), object.GetName()}
}
