// SPDX-License-Identifier: Apache-2.0

package render

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Parts returns the parts that are enabled.
func (p *Plan) Parts() []*Part {
	return slices.DeleteFunc([]*Part{p.Node, p.Controller, p.Agent}, func(part *Part) bool { return part == nil })
}

// WithAccounts returns the plan with the rights of each part also for the accounts that it still runs with, by the
// name of the part. Without them, a template with another account would stop all programs at once, and not only those
// that are replaced.
func (p *Plan) WithAccounts(running map[string][]string) *Plan {
	next := *p
	next.Objects = slices.Clone(p.Objects)
	for i, o := range p.Objects {
		subjects, _, _ := unstructured.NestedSlice(o.Object, "subjects")
		more := p.formerSubjects(subjects, running)
		if len(more) == 0 {
			continue
		}
		binding := o.DeepCopy() // the Applier takes an object that is the same for unchanged
		binding.Object["subjects"] = append(subjects, more...)
		next.Objects[i].Unstructured = binding
	}
	return &next
}

// formerSubjects returns the subjects that a binding must have in addition. An account that another part has now is
// not among them: policies confine a part by its account.
func (p *Plan) formerSubjects(subjects []any, running map[string][]string) []any {
	var more []any
	taken := map[string]bool{}
	for _, part := range p.Parts() {
		taken[part.Account] = true
	}
	for _, part := range p.Parts() {
		for _, s := range subjects {
			subject, _ := s.(map[string]any)
			if subject["kind"] != "ServiceAccount" || subject["namespace"] != Namespace || subject["name"] != part.Account {
				continue
			}
			for _, account := range slices.Compact(slices.Sorted(slices.Values(running[part.Name]))) {
				if account != "" && !taken[account] {
					former := maps.Clone(subject)
					former["name"] = account
					more = append(more, former)
				}
			}
		}
	}
	return more
}
