// SPDX-License-Identifier: Apache-2.0

package desiredstate

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/clusters"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/limits"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/scope"
	"github.com/patchbay-cni/patchbay/placement/internal/policy"
)

// keepVolume keeps a claim in its only cluster when another object needs it elsewhere: an empty volume there would hide
// that the object is without its data. An object that is in several clusters has a claim in each.
func keepVolume(s *scope.Scope, from string, d *Decision, present map[string]int64) {
	apart := slices.ContainsFunc(s.Claims[s.Key.Name].Users, func(u scope.ClaimUser) bool {
		wanted := wantedIn(u)
		return len(wanted) > 0 && !slices.Contains(wanted, from)
	})
	if !apart {
		return
	}
	d.Replicas, d.ShortfallReason = present, v1alpha1.ReasonVolumesRefused
	d.Shortfall = fmt.Sprintf("PersistentVolumeClaim %s has data in %s: it stays there until all objects that use it are in one cluster, and they are to be in %s",
		s.Key.Name, from, strings.Join(slices.Sorted(maps.Keys(s.WantedIn)), ", "))
}

// wantedIn returns the clusters where a user of a claim is when its moves have ended.
func wantedIn(u scope.ClaimUser) (names []string) {
	for _, t := range u.Targets {
		if t.State == v1alpha1.TargetActive || t.State == v1alpha1.TargetPending {
			names = append(names, string(t.Cluster))
		}
	}
	return names
}

// userRefusal returns why a volume can not leave a cluster because of another object that uses its claim; "" for none.
func userRefusal(s *scope.Scope, claim scope.Claim, from, to string) string {
	for _, u := range claim.Users {
		if u.Key == s.Key || !slices.Contains(wantedIn(u), from) || followsTo(s, u, to) {
			continue
		}
		return fmt.Sprintf("%s uses it, too, and may stay in %s: objects that share a claim move together, each by a policy or an annotation "+
			"that allows only %s, and with volumes: Transfer", u.Key, from, to)
	}
	return ""
}

// followsTo reports whether a user of a claim can only go to a cluster, with its volumes.
func followsTo(s *scope.Scope, u scope.ClaimUser, cluster string) bool {
	if u.Policy == nil || u.Policy.Spec.Volumes != v1alpha1.VolumesTransfer || policy.RunsOnce(u.GroupKind) {
		return false
	}
	in := policy.PlanInput{Assigned: map[string]int64{}}
	for _, name := range wantedIn(u) {
		in.Assigned[name] = 0
	}
	for _, c := range s.Clusters {
		in.Clusters = append(in.Clusters, policy.Cluster{
			Name: c.Name, Labels: c.Labels, Spec: &c.Spec, Reachability: clusters.ReachabilityOf(c), Deleting: c.DeletionTimestamp != nil,
		})
	}
	return u.Policy.AllowsOnly(in, cluster)
}

// usersElsewhere names an object that keeps a claim in another cluster than the one that awaits it; "" for none.
func usersElsewhere(s *scope.Scope, claim scope.Claim, cluster string) string {
	for _, u := range claim.Users {
		for _, name := range wantedIn(u) {
			if _, has := limits.TargetOf(claim.Targets, name); has && name != cluster && u.Key != s.Key {
				return fmt.Sprintf("; %s uses it in %s", u.Key, name)
			}
		}
	}
	return ""
}
