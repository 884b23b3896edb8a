// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// An explanation says the same as a plan: a cluster that it calls fit is one that the plan may use, and each other
// cluster has a reason.
func TestExplainAgreesWithPlan(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		effects := []v1alpha1.TaintEffect{v1alpha1.TaintNoSchedule, v1alpha1.TaintNoExecute}
		in := PlanInput{Assigned: map[string]int64{}, VolumeClaims: map[string]string{}}
		for _, name := range []string{"a", "b", "c", "d"} {
			spec := &v1alpha1.ClusterSpec{Accepted: rapid.Bool().Draw(rt, "accepted"), Unschedulable: rapid.Bool().Draw(rt, "unschedulable")}
			if rapid.Bool().Draw(rt, "tainted") {
				spec.Taints = []v1alpha1.Taint{{Key: rapid.SampledFrom([]string{"x", "y"}).Draw(rt, "key"), Effect: rapid.SampledFrom(effects).Draw(rt, "effect")}}
			}
			if rapid.Bool().Draw(rt, "drained") {
				spec.Drain = &v1alpha1.Drain{Mode: v1alpha1.DrainMove}
			}
			in.Clusters = append(in.Clusters, Cluster{
				Name: name, Spec: spec, Labels: map[string]string{"l": rapid.SampledFrom([]string{"1", "2"}).Draw(rt, "label")},
				Reachability: rapid.SampledFrom([]Reachability{Reachable, NotReporting, NeverReported}).Draw(rt, "reachability"),
				Lost:         rapid.Bool().Draw(rt, "lost"), Deleting: rapid.Bool().Draw(rt, "deleting"),
				DeclaredLost: rapid.Bool().Draw(rt, "declared lost"),
			})
			if rapid.Bool().Draw(rt, "assigned") {
				in.Assigned[name] = 0
				if rapid.Bool().Draw(rt, "claim") {
					in.VolumeClaims[name] = "data"
				}
			}
		}
		p := EffectivePolicy{Source: "Placement shop/p", Spec: v1alpha1.PlacementSpec{Clusters: v1alpha1.ClusterChoice{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"l": "1"}}, Tolerations: []v1alpha1.Toleration{{Key: "y"}},
		}}}
		if rapid.Bool().Draw(rt, "counted") {
			p.Spec.Clusters.Count = new(rapid.Int32Range(1, 3).Draw(rt, "count"))
		}
		all, err := Explain(&p, in)
		if err != nil || len(all) != len(in.Clusters) {
			rt.Fatalf("got %v, %v", all, err)
		}
		in.Capacity = func(string) (*int64, string) { return nil, "" }
		choice := clusterChoice{&p, in}
		selected, err := choice.candidates()
		if err != nil {
			rt.Fatal(err)
		}
		chosen := choice.limitToCount(choice.sortCandidates(selected))
		for i, f := range all {
			if f.Takes == (len(f.Reasons) > 0) {
				rt.Errorf("%s: takes %t, reasons %q", f.Cluster, f.Takes, f.Reasons)
			}
			want := false
			for _, c := range chosen {
				want = want || c.Name == f.Cluster && c.eligibility == eligible
			}
			if f.Takes != want {
				rt.Errorf("%s: takes %t, the plan says %t: %q %+v", f.Cluster, f.Takes, want, f.Reasons, in.Clusters[i])
			}
		}
	})
}
