// SPDX-License-Identifier: Apache-2.0

package desiredstate

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
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
// claim is to be where the objects are that need it, or else where its policy wants it. Where objects need it in several
// clusters, each has a claim of its own, as without transfers.
func assignVolume(s *scope.Scope, p *policy.EffectivePolicy, current *v1alpha1.Assignment, d *Decision) *policy.Error {
	if !v1alpha1.IsVolumeClaim(s.Key.GroupKind) || p.Spec.Volumes != v1alpha1.VolumesTransfer {
		return nil
	}
	present := desiredReplicas(current)
	v := current.Spec.Volume
	if isInTransfer(v) {
		d.VolumeHome = volumeHome(s, *d, string(v.To))
		d.Replicas = present
		return nil
	}
	if len(present) != 1 || len(s.WantedIn) > 1 {
		return nil
	}
	from := slices.Collect(maps.Keys(present))[0]
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
				t.Awaits, awaits = fmt.Sprintf("the volume of PersistentVolumeClaim %s must come first", name), true
				break
			}
		}
	}
	return awaits
}

// hasVolume reports whether a cluster has the volume of a claim, or the claim has none that moves.
func hasVolume(claim scope.Claim, cluster string) bool {
	if v := claim.Transfer; isInTransfer(v) {
		bound := v.State == v1alpha1.VolumeBound || v.State == v1alpha1.VolumeDiscarding || v.State == v1alpha1.VolumeRemoving
		return bound && string(v.To) == cluster
	}
	if t, ok := limits.TargetOf(claim.Targets, cluster); ok && t.State == v1alpha1.TargetActive {
		return true
	}
	for _, t := range claim.Targets {
		if report := claim.Volumes[string(t.Cluster)]; report != nil && report.Source != nil {
			return false
		}
	}
	return true
}
