// SPDX-License-Identifier: Apache-2.0

package desiredstate

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/clusters"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/limits"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/scope"
	"github.com/patchbay-cni/patchbay/placement/internal/migration"
	"github.com/patchbay-cni/patchbay/placement/internal/policy"
	"github.com/patchbay-cni/patchbay/placement/internal/render"
	"github.com/patchbay-cni/patchbay/placement/internal/volumes"
)

const (
	// volumesRetry is when to decide again about a move that was refused because of a volume: its cluster may not
	// have reported yet.
	volumesRetry = 5 * time.Second
	// volumeRecheck is how often an object that awaits a volume is planned: the volume has an Assignment of its own.
	volumeRecheck = time.Second
)

// assignVolume decides about the volume of a claim that is in one cluster, and whose policy transfers volumes: the
// claim is to be where the objects are that need it, or else where its policy wants it. Where the same objects need it
// in several clusters, each has a claim of its own, as without transfers.
func assignVolume(s *scope.Scope, p *policy.EffectivePolicy, current *v1alpha1.Assignment, d *Decision) *policy.Error {
	if !v1alpha1.IsVolumeClaim(s.Key.GroupKind) {
		return nil
	}
	present := desiredReplicas(current)
	v := current.Spec.Volume
	if isInTransfer(v) {
		d.VolumeHome = volumeHome(s, *d, string(v.To))
		d.Replicas = present
		return nil
	}
	if len(present) != 1 || p.Spec.Volumes != v1alpha1.VolumesTransfer {
		return nil
	}
	from := slices.Collect(maps.Keys(present))[0]
	if len(s.WantedIn) > 1 {
		keepVolume(s, from, d, present)
		return nil
	}
	home := volumeHome(s, *d, from)
	d.Replicas = present
	if home == from {
		return nil
	}
	why := volumeRefusal(s, from, home)
	if why == "" && len(current.Spec.Targets) > 1 {
		why = "it has not left another cluster yet"
	}
	if why != "" {
		return &policy.Error{
			Reason: v1alpha1.ReasonVolumesRefused, Object: p.Source, Field: "spec.volumes",
			Message: fmt.Sprintf("PersistentVolumeClaim %s has data in %s: it stays there: %s", s.Key.Name, from, why),
		}
	}
	d.VolumeHome = home
	d.Replicas = maps.Clone(present)
	d.Replicas[home] = 0
	return nil
}

// volumeHome returns the cluster that is to have a volume, by its dependents or else by the decision.
func volumeHome(s *scope.Scope, d Decision, otherwise string) string {
	wanted := slices.Collect(maps.Keys(s.WantedIn))
	if len(wanted) == 0 && len(s.RequiredIn) == 0 {
		wanted = slices.Collect(maps.Keys(d.Replicas))
	}
	if len(wanted) == 1 {
		return wanted[0]
	}
	return otherwise
}

func isInTransfer(v *v1alpha1.VolumeTransfer) bool { return v != nil && v.From != "" }

// volumeRefusal returns why the volumes of the object can not move from a cluster to another one; "" when they can.
func volumeRefusal(s *scope.Scope, from, to string) string {
	if others := otherClaims(s, from); len(others) > 0 {
		return fmt.Sprintf("PersistentVolumeClaim %s was made in the cluster, by volumeClaimTemplates or another controller: only claims of the hub move", others[0])
	}
	here, there := s.Clusters[from], s.Clusters[to]
	if here == nil || there == nil {
		return "both clusters must be in the inventory"
	}
	for _, name := range slices.Sorted(maps.Keys(s.Claims)) {
		claim := s.Claims[name]
		if v := claim.Transfer; isInTransfer(v) && (v.From == v1alpha1.ClusterName(from) || v.To == v1alpha1.ClusterName(from)) &&
			(v.From == v1alpha1.ClusterName(to) || v.To == v1alpha1.ClusterName(to)) {
			continue // it is on the way
		}
		if _, ok := limits.TargetOf(claim.Targets, from); !ok {
			if len(claim.Targets) == 0 {
				return fmt.Sprintf("PersistentVolumeClaim %s must be placed by a policy with volumes: Transfer", name)
			}
			if t, ok := limits.TargetOf(claim.Targets, to); ok && t.State == v1alpha1.TargetActive {
				continue // it has moved already
			}
		}
		if why := userRefusal(s, claim, from, to); why != "" {
			return fmt.Sprintf("PersistentVolumeClaim %s: %s", name, why)
		}
		if why := volumes.Refusal(claim.Volumes[from], location(here), location(there)); why != "" {
			return fmt.Sprintf("PersistentVolumeClaim %s: %s", name, why)
		}
		if why := sharedRefusal(s, claim, claim.Volumes[from].Source, from); why != "" {
			return fmt.Sprintf("PersistentVolumeClaim %s: %s", name, why)
		}
	}
	return ""
}

func location(c *v1alpha1.Cluster) volumes.Location {
	return volumes.Location{Name: c.Name, Properties: c.Spec.Properties}
}

// otherClaims returns the claims of an object that the hub has not placed by themselves.
func otherClaims(s *scope.Scope, cluster string) (names []string) {
	if s.Object == nil || v1alpha1.IsVolumeClaim(s.Key.GroupKind) {
		return nil
	}
	for _, name := range render.VolumeClaimNames(s.Object) {
		if _, ok := s.Claims[name]; !ok {
			names = append(names, name)
		}
	}
	for _, reported := range s.Reports[cluster].VolumeClaims {
		namespace, name, _ := strings.Cut(reported, "/")
		if _, ok := s.Claims[name]; !ok || namespace != s.Key.Namespace {
			names = append(names, name)
		}
	}
	return names
}

// awaitVolumes sets which clusters await volumes of the object before they start it, and reports whether any does.
func awaitVolumes(s *scope.Scope, in *migration.Input) (awaits bool) {
	if v1alpha1.IsVolumeClaim(s.Key.GroupKind) {
		return false
	}
	for i := range in.Targets {
		t := &in.Targets[i]
		if !t.Wanted || t.State != migration.Pending && t.State != migration.None {
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(s.Claims)) {
			if !hasVolume(s.Claims[name], t.Cluster) {
				t.Awaits, awaits = fmt.Sprintf("the volume of PersistentVolumeClaim %s must come first%s", name, usersElsewhere(s, s.Claims[name], t.Cluster)), true
				break
			}
		}
	}
	return awaits
}

// hasVolume reports whether a cluster has the volume of a claim, or the claim has none that moves.
func hasVolume(claim scope.Claim, cluster string) bool {
	if v := claim.Transfer; isInTransfer(v) {
		isFrom, isTo := string(v.From) == cluster, string(v.To) == cluster
		return (isFrom || isTo) && volumes.IsIn(v.State, v.Source.IsShared(), isFrom)
	}
	if t, ok := limits.TargetOf(claim.Targets, cluster); ok && t.State == v1alpha1.TargetActive {
		return true
	}
	return !claim.Ordered
}

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
