// SPDX-License-Identifier: Apache-2.0

package render

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// RuleError is what is wrong with a Customization.
type RuleError struct {
	// Namespace and Name of the Customization.
	Namespace, Name string
	// Rule is the index of the rule from 0, or -1 for what is not about one rule.
	Rule int
	// Path of the rule.
	Path string
	// Err is what is wrong.
	Err error
}

// Error names Customization, rule and path.
func (e *RuleError) Error() string {
	if e.Rule < 0 {
		return fmt.Sprintf("Customization %s/%s: %v", e.Namespace, e.Name, e.Err)
	}
	return fmt.Sprintf("Customization %s/%s: spec.rules[%d] (path %q): %v", e.Namespace, e.Name, e.Rule, e.Path, e.Err)
}

// Unwrap returns what is wrong.
func (e *RuleError) Unwrap() error { return e.Err }

// Rules are Customizations that are ready to be carried out.
type Rules struct {
	all []*customization
}

// customization is one Customization.
type customization struct {
	namespace, name string
	matcher         matcher
	rules           []rule
	broken          error // why it can be carried out for nothing that it matches
}

// Compile makes Customizations ready. The errors are RuleErrors, at most one for each; a
// Customization with an error stays among the rules, so that Apply fails for what it
// matches and what was rendered last stays.
func Compile(list []v1alpha1.Customization) (*Rules, []error) {
	env, err := newEnv()
	if err != nil {
		return &Rules{}, []error{err}
	}
	var errs []error
	rules := &Rules{}
	over := overBudget(list)
	for i := range list {
		c := &list[i]
		compiled := &customization{namespace: c.Namespace, name: c.Name}
		if compiled.broken = compiled.compile(env, &c.Spec, over[i]); compiled.broken != nil {
			errs = append(errs, compiled.broken)
		}
		rules.all = append(rules.all, compiled)
	}
	slices.SortFunc(rules.all, func(a, b *customization) int {
		return cmp.Or(cmp.Compare(order(a.namespace), order(b.namespace)), strings.Compare(a.namespace, b.namespace), strings.Compare(a.name, b.name))
	})
	return rules, errs
}

// order has the Customizations that are for all namespaces first.
func order(namespace string) int {
	if namespace == v1alpha1.SystemNamespace {
		return 0
	}
	return 1
}

// Apply carries out the rules on an object on its way to a cluster, in place. The
// error names the object and wraps a RuleError; the object is then as it was.
func (r *Rules) Apply(object *unstructured.Unstructured, cluster *v1alpha1.Cluster) error {
	work := object.DeepCopy()
	if err := r.apply(work, cluster); err != nil {
		return fmt.Errorf("%s %s/%s: %w", object.GetKind(), object.GetNamespace(), object.GetName(), err)
	}
	object.Object = work.Object
	return nil
}

func (r *Rules) apply(work *unstructured.Unstructured, cluster *v1alpha1.Cluster) error {
	spent := map[string]uint64{} // by namespace of the Customizations
	for _, c := range r.all {
		if !c.matcher.matches(work, cluster) {
			continue
		}
		if c.broken != nil {
			return c.broken
		}
		for i := range c.rules {
			cost, err := c.rules[i].apply(work, cluster)
			if err == nil && spent[c.namespace]+cost > maxCost {
				err = fmt.Errorf("the Customizations of namespace %s must cost at most %d together for one object and cluster, "+
					"and this rule takes them to %d: make rules simpler, or let each match fewer objects", c.namespace, maxCost, spent[c.namespace]+cost)
			}
			if err != nil {
				return c.wrong(i, c.rules[i].path, err)
			}
			spent[c.namespace] += cost
		}
	}
	return nil
}

// wrong makes an error of one of the rules, or of the match with -1.
func (c *customization) wrong(rule int, path string, err error) error {
	return &RuleError{Namespace: c.namespace, Name: c.name, Rule: rule, Path: path, Err: err}
}
