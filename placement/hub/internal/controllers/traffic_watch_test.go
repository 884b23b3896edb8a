// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/kinds"
)

// A workload that moves waits for what the Works of Services have, and acknowledge. One at rest does not.
func TestTrafficQueuesMoves(t *testing.T) {
	t.Parallel()
	workload := dependentKey.RecordName()
	endpoints := []v1alpha1.TrafficEndpoints{{Work: workload, Addresses: []string{"10.77.1.1"}}}
	draining := targets("east", v1alpha1.TargetDraining, "west", v1alpha1.TargetActive)
	for name, tc := range map[string]struct {
		reason  string
		targets []v1alpha1.Target
		old     func(w *v1alpha1.Work)
		change  func(w *v1alpha1.Work)
		queued  bool
	}{
		"Endpoints":   {reason: "South gets the endpoints that the move waits for.", change: func(w *v1alpha1.Work) { w.Spec.Traffic.Endpoints = endpoints }, queued: true},
		"Reports":     {reason: "South itself has a Pod.", change: func(w *v1alpha1.Work) { w.Status.Traffic.Endpoints = endpoints }, queued: true},
		"Less":        {reason: "It has them no longer.", old: func(w *v1alpha1.Work) { w.Spec.Traffic.Endpoints = endpoints }, change: func(w *v1alpha1.Work) { w.Spec.Traffic.Endpoints = nil }, queued: true},
		"Acknowledge": {reason: "South has carried out a withdrawal.", old: func(w *v1alpha1.Work) { withdraw(w, workload) }, change: func(w *v1alpha1.Work) { w.Status.Traffic.Revision++ }, queued: true},
		"Message":     {reason: "MoveBlocked has the cause.", old: func(w *v1alpha1.Work) { withdraw(w, workload) }, change: func(w *v1alpha1.Work) { w.Status.Traffic.Message = "forbidden" }, queued: true},
		"Removed": {reason: "The Service has left south.", old: func(w *v1alpha1.Work) { withdraw(w, workload); w.Spec.Removal = &v1alpha1.Removal{} }, change: func(w *v1alpha1.Work) {
			w.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionApplied, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonRemoved}}
		}, queued: true},
		"Unchanged": {reason: "A heartbeat says nothing new.", old: func(w *v1alpha1.Work) { w.Spec.Traffic.Endpoints = endpoints }, change: func(w *v1alpha1.Work) { w.ResourceVersion = "2" }},
		"AtRest": {reason: "Nothing waits for it.", targets: targets("east", v1alpha1.TargetActive, "west", v1alpha1.TargetActive),
			change: func(w *v1alpha1.Work) { w.Spec.Traffic.Endpoints = endpoints }},
		"Other": {reason: "It is another workload's.", change: func(w *v1alpha1.Work) { w.Spec.Traffic.Endpoints = []v1alpha1.TrafficEndpoints{{Work: "other"}} }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if tc.targets == nil {
				tc.targets = draining
			}
			h := newDependencyHub(t, []client.Object{assignment(dependentKey, tc.targets)})
			l := &objectLister{cached: h, kinds: &h.kinds}
			old := appliedWork(kinds.Key{GroupKind: schema.GroupKind{Kind: "Service"}, Namespace: dependentKey.Namespace, Name: "web"}, "south")
			old.Spec.Traffic, old.Status.Traffic = &v1alpha1.WorkTraffic{}, &v1alpha1.WorkTrafficStatus{Revision: 1}
			if tc.old != nil {
				tc.old(old)
			}
			now := old.DeepCopy()
			tc.change(now)
			if got := l.concernedByTraffic(t.Context(), old, now); slices.Contains(got, dependentKey) != tc.queued {
				t.Errorf("%s: queues %v, want the workload: %t", tc.reason, got, tc.queued)
			}
		})
	}
}

func withdraw(w *v1alpha1.Work, workload string) {
	w.Spec.Traffic.Withdrawn = []v1alpha1.WithdrawnTraffic{{Cluster: "east", Work: workload}}
}
