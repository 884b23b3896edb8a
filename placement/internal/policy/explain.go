// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// Fitness is what a policy may use one cluster for.
type Fitness struct {
	// Cluster is its name.
	Cluster string
	// Selected reports that the policy names or selects the cluster.
	Selected bool
	// Takes reports that the cluster may get the object, or more replicas of it.
	Takes bool
	// Keeps reports that what the cluster has of the object may stay.
	Keeps bool
	// Reasons are why the cluster does not take or keep the object; empty if it does.
	Reasons []string
}

// Explain returns the fitness of all clusters for an object, by name. The room of clusters is no part of it.
func Explain(p *EffectivePolicy, in PlanInput) ([]Fitness, error) {
	choice := clusterChoice{p, in}
	selected, err := choice.candidates()
	if err != nil {
		return nil, err
	}
	if in.Capacity == nil {
		choice.in.Capacity = func(string) (*int64, string) { return nil, "" }
	}
	usable := choice.sortCandidates(selected)
	chosen := choice.limitToCount(usable)
	var all []Fitness
	for i := range in.Clusters {
		c := &in.Clusters[i]
		f := Fitness{Cluster: c.Name}
		if f.Reasons = unselectedReasons(p, c); len(f.Reasons) == 0 {
			has := func(of []candidate) bool {
				return slices.ContainsFunc(of, func(s candidate) bool { return s.Name == c.Name })
			}
			f.Selected, f.Reasons = true, unfitReasons(p, in, c)
			f.Takes = len(f.Reasons) == 0
			f.Keeps = f.Takes
			if at := slices.IndexFunc(selected, func(s candidate) bool { return s.Name == c.Name }); at >= 0 {
				f.Keeps = selected[at].eligibility >= mayStay
			}
			if has(usable) && !has(chosen) {
				f.Takes, f.Keeps = false, false
				f.Reasons = append(f.Reasons, fmt.Sprintf("spec.clusters.count is %d: %s", *p.Spec.Clusters.Count, namesOf(chosen)))
			}
		}
		all = append(all, f)
	}
	slices.SortFunc(all, func(a, b Fitness) int { return cmp.Compare(a.Cluster, b.Cluster) })
	return all, nil
}

// namesOf joins the names of candidates.
func namesOf(chosen []candidate) string {
	var names []string
	for _, c := range chosen {
		names = append(names, c.Name)
	}
	return "chosen before it: " + strings.Join(names, ", ")
}

// unselectedReasons returns why the policy does not select a cluster; empty if it does.
func unselectedReasons(p *EffectivePolicy, c *Cluster) []string {
	choice := p.Spec.Clusters
	switch {
	case p.Source == v1alpha1.SourceAnnotation && len(choice.Names) == 0:
		return []string{"the annotation names no cluster: it is an order to remove the object everywhere"}
	case len(choice.Names) == 0 && choice.Selector == nil:
		return []string{"spec.clusters selects no cluster"}
	case len(choice.Names) > 0 && !slices.Contains(choice.Names, v1alpha1.ClusterName(c.Name)):
		return []string{"it is not named"}
	}
	if ok, err := selectorMatches(choice.Selector, c.Labels); err == nil && ok {
		return nil
	}
	return []string{"its labels do not match the selector " + metav1.FormatLabelSelector(choice.Selector)}
}

// unfitReasons returns why a selected cluster takes nothing new; empty if it does. TestExplain checks that it
// agrees with eligibilityOf.
func unfitReasons(p *EffectivePolicy, in PlanInput, c *Cluster) []string {
	var reasons []string
	if reason := c.unavailableReason(); reason != "" {
		reasons = append(reasons, strings.TrimPrefix(reason, c.Name+" "))
	}
	switch {
	case c.DeclaredLost:
		reasons = append(reasons, "is lost, and others replace it")
	case c.Lost:
		reasons = append(reasons, "is assumed lost (offline.assumeLostAfter)")
	case c.LossHeld != "":
		reasons = append(reasons, "is not assumed lost: "+c.LossHeld)
	}
	if c.IsDraining() {
		reasons = append(reasons, "is being drained")
	}
	if c.Spec.Unschedulable {
		reasons = append(reasons, "is unschedulable")
	}
	for _, t := range c.Spec.Taints {
		one := Cluster{Name: c.Name, Spec: &v1alpha1.ClusterSpec{Taints: []v1alpha1.Taint{t}}}
		if (t.Effect == v1alpha1.TaintNoExecute || t.Effect == v1alpha1.TaintNoSchedule) && one.hasTaint(t.Effect, p.Spec.Clusters.Tolerations) {
			reasons = append(reasons, fmt.Sprintf("has the taint %s=%s:%s, which the policy does not tolerate", t.Key, t.Value, t.Effect))
		}
	}
	if claim := in.VolumeClaims[c.Name]; claim != "" && len(reasons) > 0 {
		reasons = append(reasons, "has data in the volume claim "+claim+", so that what is there stays")
	}
	return reasons
}
