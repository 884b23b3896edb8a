// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// A plan that does not depend on a change of labels is the same before and after it.
func TestDependsOnLabels(t *testing.T) {
	t.Parallel()
	independent := 0
	rapid.Check(t, func(rt *rapid.T) {
		names := []string{"east", "north", "south", "west"}
		choice := drawChoice(rt, names)
		in := PlanInput{Assigned: map[string]int64{}, Started: map[string]bool{}, Capacity: func(string) (*int64, string) { return nil, "" }}
		if rapid.Bool().Draw(rt, "replicas") {
			in.Replicas = new(rapid.Int64Range(0, 9).Draw(rt, "n"))
		}
		for _, name := range names {
			in.Clusters = append(in.Clusters, Cluster{Name: name, Labels: drawLabels(rt), Spec: &v1alpha1.ClusterSpec{
				Accepted: rapid.IntRange(0, 5).Draw(rt, "accepted") > 0, Unschedulable: rapid.IntRange(0, 5).Draw(rt, "unschedulable") == 0,
			}})
			switch rapid.IntRange(0, 9).Draw(rt, "assigned") {
			case 0:
				in.Assigned[name] = rapid.Int64Range(0, 3).Draw(rt, "has")
			case 1:
				in.Started[name] = rapid.Bool().Draw(rt, "started")
			}
		}
		maps.DeleteFunc(in.Started, func(_ string, started bool) bool { return !started })
		p := &EffectivePolicy{Source: "Placement web", Spec: v1alpha1.PlacementSpec{Clusters: choice}}
		p.Spec.Replicas.Mode = rapid.SampledFrom([]v1alpha1.ReplicaMode{
			v1alpha1.ReplicasDuplicate, v1alpha1.ReplicasDivide, v1alpha1.ReplicasSingle,
		}).Draw(rt, "mode")

		want, errBefore := p.Plan(in)
		for i := range names {
			before := in.Clusters[i].Labels
			for _, after := range allLabels() {
				if DependsOnLabels(choice, before, after) {
					continue
				}
				if !maps.Equal(before, after) {
					independent++
				}
				changed := in
				changed.Clusters = slices.Clone(in.Clusters)
				changed.Clusters[i].Labels = after
				got, errAfter := p.Plan(changed)
				if diff := cmp.Diff(want, got); diff != "" || (errBefore == nil) != (errAfter == nil) {
					rt.Fatalf("%s from %v to %v: %v, %v: -before +after\n%s", names[i], before, after, errBefore, errAfter, diff)
				}
			}
		}
	})
	if independent == 0 {
		t.Error("no drawn change is independent of its plan: the test proves nothing")
	}
}

// allLabels are all labels that a Cluster or a selector may have.
func allLabels() (all []map[string]string) {
	for _, zone := range []string{"", "a", "b"} {
		for _, tier := range []string{"", "a", "b"} {
			labels := map[string]string{"zone": zone, "tier": tier}
			maps.DeleteFunc(labels, func(_, value string) bool { return value == "" })
			all = append(all, labels)
		}
	}
	return all
}

func drawLabels(rt *rapid.T) map[string]string {
	return rapid.SampledFrom(allLabels()).Draw(rt, "labels")
}

func drawChoice(rt *rapid.T, names []string) v1alpha1.ClusterChoice {
	var choice v1alpha1.ClusterChoice
	if rapid.Bool().Draw(rt, "named") {
		for _, name := range names {
			if rapid.IntRange(0, 4).Draw(rt, name) > 0 {
				choice.Names = append(choice.Names, v1alpha1.ClusterName(name))
			}
		}
	}
	if len(choice.Names) == 0 || rapid.Bool().Draw(rt, "selected") {
		choice.Selector = &metav1.LabelSelector{}
		if rapid.IntRange(0, 2).Draw(rt, "by value") == 0 {
			choice.Selector.MatchLabels = drawLabels(rt)
		}
		if rapid.IntRange(0, 2).Draw(rt, "expression") == 0 {
			choice.Selector.MatchExpressions = []metav1.LabelSelectorRequirement{{
				Key: "zone", Operator: rapid.SampledFrom([]metav1.LabelSelectorOperator{metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist}).Draw(rt, "operator"),
			}}
		}
	}
	if rapid.Bool().Draw(rt, "counted") {
		choice.Count = new(rapid.Int32Range(1, 3).Draw(rt, "count"))
		choice.Spread = rapid.SampledFrom([]string{"", "zone", "tier"}).Draw(rt, "spread")
	}
	return choice
}
