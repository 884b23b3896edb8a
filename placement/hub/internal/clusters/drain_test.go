// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/kinds"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/limits"
)

// drained returns the Assignment of an object in east.
func drainedObject(group, kind, name string, t v1alpha1.Target, conditions ...metav1.Condition) v1alpha1.Assignment {
	t.Cluster = "east"
	return v1alpha1.Assignment{
		Spec: v1alpha1.AssignmentSpec{
			Object: v1alpha1.ObjectReference{Group: group, Kind: kind, Namespace: "shop", Name: name}, Targets: []v1alpha1.Target{t},
		},
		Status: v1alpha1.AssignmentStatus{Conditions: conditions},
	}
}

func needing(a v1alpha1.Assignment, kind, name string) v1alpha1.Assignment {
	a.Spec.Dependencies = []v1alpha1.DependencyReference{{Kind: kind, Name: name}}
	return a
}

// The progress of a drain has each object in one class, and the reason why it is still there.
func TestDrainProgress(t *testing.T) {
	t.Parallel()
	active, leaves := v1alpha1.Target{State: v1alpha1.TargetActive}, v1alpha1.Target{State: v1alpha1.TargetDraining}
	stalled := metav1.Condition{Type: v1alpha1.ConditionMoveBlocked, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonStalled, Message: "west is not ready"}
	full := metav1.Condition{Type: v1alpha1.ConditionPlaced, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonUnschedulable, Message: "west is full"}
	long := full
	long.Message = strings.Repeat("é", 200)
	for name, tc := range map[string]struct {
		reason  string
		objects []v1alpha1.Assignment
		stays   map[string]limits.Stay // by name
		want    v1alpha1.DrainStatus
	}{
		"waits": {
			"A move between two other clusters is not what it waits for here (D24).",
			[]v1alpha1.Assignment{drainedObject("apps", "Deployment", "web", active, stalled)}, nil,
			v1alpha1.DrainStatus{Waiting: 1},
		},
		"moves": {"It leaves.", []v1alpha1.Assignment{drainedObject("apps", "Deployment", "web", leaves, full)}, nil, v1alpha1.DrainStatus{Moving: 1}},
		"blocked": {
			"The move makes no step.", []v1alpha1.Assignment{drainedObject("apps", "Deployment", "web", leaves, stalled)}, nil,
			v1alpha1.DrainStatus{Blocked: 1, Blockers: []v1alpha1.DrainBlocker{{Object: "Deployment shop/web", Reason: "MoveBlocked", Message: "west is not ready"}}},
		},
		"no place": {
			"No cluster takes it.", []v1alpha1.Assignment{drainedObject("apps", "Deployment", "web", active, full)}, map[string]limits.Stay{"web": limits.NoPlace},
			v1alpha1.DrainStatus{Blocked: 1, Blockers: []v1alpha1.DrainBlocker{{Object: "Deployment shop/web", Reason: "Unschedulable", Message: "west is full"}}},
		},
		"not tried": {
			"The condition is about another cluster until the hub has looked for a place.",
			[]v1alpha1.Assignment{drainedObject("apps", "Deployment", "web", active, full)}, nil, v1alpha1.DrainStatus{Waiting: 1},
		},
		"long message": {
			"A status must not grow without bound.", []v1alpha1.Assignment{drainedObject("apps", "Deployment", "web", active, long)}, map[string]limits.Stay{"web": limits.NoPlace},
			v1alpha1.DrainStatus{Blocked: 1, Blockers: []v1alpha1.DrainBlocker{{Object: "Deployment shop/web", Reason: "Unschedulable", Message: strings.Repeat("é", 126) + "..."}}},
		},
		"pinned": {
			"A Deployment would be lost with the cluster.", []v1alpha1.Assignment{drainedObject("apps", "Deployment", "web", active, full)}, map[string]limits.Stay{"web": limits.Pinned},
			v1alpha1.DrainStatus{Staying: 1, Stays: []v1alpha1.DrainBlocker{{
				Object: "Deployment shop/web", Reason: "Pinned", Message: "its policy allows no other cluster: change it, or delete the object",
			}}},
		},
		"claim": {
			"Its data would be lost with the cluster.", []v1alpha1.Assignment{drainedObject("", "PersistentVolumeClaim", "data", active)}, map[string]limits.Stay{"data": limits.HasVolumes},
			v1alpha1.DrainStatus{Staying: 1, Stays: []v1alpha1.DrainBlocker{{
				Object: "PersistentVolumeClaim shop/data", Reason: "VolumesRefused", Message: "it has a volume claim with data in the cluster, and the volume does not move",
			}}},
		},
		"runs once": {
			"It would run a second time.", []v1alpha1.Assignment{drainedObject("batch", "Job", "job", active)}, map[string]limits.Stay{"job": limits.RunsOnce},
			v1alpha1.DrainStatus{Staying: 1, Stays: []v1alpha1.DrainBlocker{{
				Object: "Job shop/job", Reason: "RunsOnce", Message: "it has started in the cluster, or may have, and does not run a second time",
			}}},
		},
		"dependency of a pinned one": {
			"It stays with it.",
			[]v1alpha1.Assignment{needing(drainedObject("apps", "DaemonSet", "log", active, full), "ConfigMap", "log"), drainedObject("", "ConfigMap", "log", active)},
			map[string]limits.Stay{"log": limits.Pinned},
			v1alpha1.DrainStatus{Staying: 2, Stays: []v1alpha1.DrainBlocker{
				{Object: "ConfigMap shop/log", Reason: "Required", Message: "DaemonSet shop/log needs it there"},
				{Object: "DaemonSet shop/log", Reason: "Pinned", Message: "its policy allows no other cluster"},
			}},
		},
		"dependency of a moving one": {
			"It moves with it, though no policy places it.",
			[]v1alpha1.Assignment{needing(drainedObject("apps", "Deployment", "web", leaves), "ConfigMap", "conf"), drainedObject("", "ConfigMap", "conf", active)},
			map[string]limits.Stay{"conf": limits.AwaitsUser}, v1alpha1.DrainStatus{Moving: 2},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			now := time.Unix(10_000, 0)
			c := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "east"}, Spec: v1alpha1.ClusterSpec{Drain: &v1alpha1.Drain{Mode: v1alpha1.DrainMove}}}
			drains := limits.NewDrains()
			drains.Check(c, tc.objects, now)
			for _, a := range tc.objects {
				if stay, ok := tc.stays[a.Spec.Object.Name]; ok {
					drains.Stays(c, kinds.KeyOf(a.Spec.Object), stay, a.Spec.Targets[0], now)
				}
			}
			elsewhere := drainedObject("", "ConfigMap", "other", active)
			elsewhere.Spec.Targets[0].Cluster = "west"
			tc.want.StartTime, tc.want.Total, tc.want.Left = metav1.NewTime(time.Unix(1, 0)), 7, int32(len(tc.objects))
			before := &v1alpha1.DrainStatus{StartTime: tc.want.StartTime, Total: 7}
			got := progressOf("east", append(tc.objects, elsewhere), drains).status(before, now)
			for _, list := range []*[]v1alpha1.DrainBlocker{&tc.want.Blockers, &tc.want.Stays} {
				if *list == nil {
					*list = []v1alpha1.DrainBlocker{}
				}
			}
			if got.Blockers == nil {
				got.Blockers = []v1alpha1.DrainBlocker{}
			}
			if got.Stays == nil {
				got.Stays = []v1alpha1.DrainBlocker{}
			}
			if diff := cmp.Diff(&tc.want, got); diff != "" {
				t.Errorf("%s\n-want +got\n%s", tc.reason, diff)
			}
		})
	}
}
