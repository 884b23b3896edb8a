// SPDX-License-Identifier: Apache-2.0

package render

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// RuleError is an error of a Customization.
type RuleError struct {
	// Namespace and Name of the Customization.
	Namespace, Name string
	// Rule is the index of the rule from 0, or -1 for an error that is not about one rule.
	Rule int
	// Path of the rule.
	Path string
	// Err is the cause.
	Err error
}

// Error returns the message, with Customization, rule and path.
func (e *RuleError) Error() string {
	if e.Rule < 0 {
		return fmt.Sprintf("Customization %s/%s: %v", e.Namespace, e.Name, e.Err)
	}
	return fmt.Sprintf("Customization %s/%s: spec.rules[%d] (path %q): %v", e.Namespace, e.Name, e.Rule, e.Path, e.Err)
}

// Unwrap returns the cause.
func (e *RuleError) Unwrap() error { return e.Err }

// Rules are compiled Customizations.
type Rules struct {
	customizations []*compiledCustomization
}

// compiledCustomization is one compiled Customization.
type compiledCustomization struct {
	namespace, name string
	matcher         matcher
	rules           []rule
	invalid         error // why it cannot be applied
}

// Compile compiles Customizations. It returns at most one error, a *RuleError, for each. A Customization with an
// error stays in the rules: Apply fails for the objects that it matches, so that their last manifest stays.
func Compile(list []v1alpha1.Customization) (*Rules, []error) {
	env, err := newCELEnv()
	if err != nil {
		return &Rules{}, []error{err}
	}
	var errs []error
	rules := &Rules{}
	over := overBudget(list)
	for i := range list {
		c := &list[i]
		compiled := &compiledCustomization{namespace: c.Namespace, name: c.Name}
		if compiled.invalid = compiled.compile(env, &c.Spec, over[i]); compiled.invalid != nil {
			errs = append(errs, compiled.invalid)
		}
		rules.customizations = append(rules.customizations, compiled)
	}
	slices.SortFunc(rules.customizations, func(a, b *compiledCustomization) int {
		return cmp.Or(cmp.Compare(namespaceOrder(a.namespace), namespaceOrder(b.namespace)), strings.Compare(a.namespace, b.namespace), strings.Compare(a.name, b.name))
	})
	return rules, errs
}

// namespaceOrder sorts the Customizations for all namespaces first.
func namespaceOrder(namespace string) int {
	if namespace == v1alpha1.SystemNamespace {
		return 0
	}
	return 1
}

// compile compiles a Customization. over is the error of one that exceeds its namespace's budget, of which it
// compiles the match only.
func (c *compiledCustomization) compile(env *cel.Env, spec *v1alpha1.CustomizationSpec, over error) (err error) {
	if c.matcher, err = newMatcher(c.namespace, &spec.Match); err != nil {
		return c.ruleError(-1, "", fmt.Errorf("spec.match: %w", err))
	}
	if over != nil {
		return c.ruleError(-1, "", over)
	}
	for i := range spec.Rules {
		r, err := newRule(env, &spec.Rules[i])
		if err != nil {
			return c.ruleError(i, spec.Rules[i].Path, err)
		}
		c.rules = append(c.rules, r)
	}
	return nil
}

// ruleError returns an error of a rule, or of the match with -1.
func (c *compiledCustomization) ruleError(rule int, path string, err error) error {
	return &RuleError{Namespace: c.namespace, Name: c.name, Rule: rule, Path: path, Err: err}
}

// Apply applies the rules to an object for a cluster, in place. After an error, which names the object and wraps
// a *RuleError, the object is unchanged.
func (r *Rules) Apply(object *unstructured.Unstructured, cluster *v1alpha1.Cluster) error {
	work := object.DeepCopy()
	if err := r.apply(work, cluster); err != nil {
		return fmt.Errorf("%s %s/%s: %w", object.GetKind(), object.GetNamespace(), object.GetName(), err)
	}
	object.Object = work.Object
	return nil
}

// apply applies the rules, and leaves a partly changed object after an error.
func (r *Rules) apply(work *unstructured.Unstructured, cluster *v1alpha1.Cluster) error {
	spent := map[string]uint64{} // by namespace of the Customizations
	for _, c := range r.customizations {
		if !c.matcher.matches(work, cluster) {
			continue
		}
		if c.invalid != nil {
			return c.invalid
		}
		for i := range c.rules {
			cost, err := c.rules[i].apply(work, cluster)
			if err == nil && spent[c.namespace]+cost > maxCost {
				err = fmt.Errorf("the Customizations of namespace %s must cost at most %d together for one object and cluster, "+
					"and this rule takes them to %d: make rules simpler, or let each match fewer objects", c.namespace, maxCost, spent[c.namespace]+cost)
			}
			if err != nil {
				return c.ruleError(i, c.rules[i].path, err)
			}
			spent[c.namespace] += cost
		}
	}
	return nil
}

// matcher selects objects and clusters.
type matcher struct {
	namespace         string // of the objects; empty for all
	kinds             []schema.GroupKind
	objects, clusters labels.Selector
}

// newMatcher compiles the match of a Customization. With an error, the matcher ignores the selectors, and so
// matches more objects.
func newMatcher(namespace string, match *v1alpha1.CustomizationMatch) (matcher, error) {
	m := matcher{namespace: namespace, objects: labels.Everything(), clusters: labels.Everything()}
	if namespace == v1alpha1.SystemNamespace {
		m.namespace = ""
	}
	for _, kind := range match.Kinds {
		m.kinds = append(m.kinds, schema.ParseGroupKind(string(kind)))
	}
	objects, err := parseSelector(match.Selector)
	if err != nil {
		return m, fmt.Errorf("selector: %w", err)
	}
	clusters, err := parseSelector(match.ClusterSelector)
	if err != nil {
		return m, fmt.Errorf("clusterSelector: %w", err)
	}
	m.objects, m.clusters = objects, clusters
	return m, nil
}

// parseSelector converts a label selector; nil selects all.
func parseSelector(s *metav1.LabelSelector) (labels.Selector, error) {
	if s == nil {
		return labels.Everything(), nil
	}
	return metav1.LabelSelectorAsSelector(s)
}

// matches tells whether the Customization applies to an object for a cluster.
func (m *matcher) matches(object *unstructured.Unstructured, cluster *v1alpha1.Cluster) bool {
	if m.namespace != "" && object.GetNamespace() != m.namespace {
		return false
	}
	is := len(m.kinds) == 0
	gk := object.GroupVersionKind().GroupKind()
	for _, kind := range m.kinds {
		// A kind without a group is that kind of any group.
		is = is || kind.Kind == gk.Kind && (kind.Group == "" || kind.Group == gk.Group)
	}
	return is && m.objects.Matches(labels.Set(object.GetLabels())) && m.clusters.Matches(labels.Set(cluster.Labels))
}

// Budget of the Customizations of one namespace, whose authors are not the hub's admins: their compilation takes
// time of the hub, which all namespaces share. maxCost limits the cost of their evaluation.
const (
	maxCustomizations  = 32
	maxExpressionBytes = 16 << 10
)

// overBudget returns errors, by index in the list, for the Customizations that exceed the budget: the youngest
// ones of a namespace. The Customizations of the hub's own namespace have no budget.
func overBudget(list []v1alpha1.Customization) map[int]error {
	byAge := make([]int, len(list))
	for i := range byAge {
		byAge[i] = i
	}
	slices.SortFunc(byAge, func(i, j int) int {
		a, b := &list[i], &list[j]
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	})
	over := map[int]error{}
	count, bytes := map[string]int{}, map[string]int{}
	for _, i := range byAge {
		c := &list[i]
		size := 0
		for j := range c.Spec.Rules {
			size += len(c.Spec.Rules[j].CEL)
		}
		switch {
		case c.Namespace == v1alpha1.SystemNamespace:
		case count[c.Namespace] == maxCustomizations:
			over[i] = fmt.Errorf("namespace %s must have at most %d Customizations, and this one is among the youngest: delete some, "+
				"or bring their rules together", c.Namespace, maxCustomizations)
		case bytes[c.Namespace]+size > maxExpressionBytes:
			over[i] = fmt.Errorf("spec.rules[*].cel: the expressions in namespace %s must have at most %d bytes together, and these %d go beyond: "+
				"make them shorter, or delete other Customizations", c.Namespace, maxExpressionBytes, size)
		default:
			count[c.Namespace]++
			bytes[c.Namespace] += size
		}
	}
	return over
}

// ValidateCustomization returns the error of a Customization. namespace are all Customizations of its
// namespace.
func ValidateCustomization(c *v1alpha1.Customization, namespace []v1alpha1.Customization) error {
	only := []v1alpha1.Customization{*c}
	for i, over := range overBudget(namespace) {
		if namespace[i].UID == c.UID {
			return (&compiledCustomization{namespace: c.Namespace, name: c.Name}).ruleError(-1, "", over)
		}
	}
	if _, errs := Compile(only); len(errs) > 0 {
		return errs[0]
	}
	return nil
}
