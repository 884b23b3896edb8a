// SPDX-License-Identifier: Apache-2.0

package desiredstate

import (
	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/scope"
	"github.com/patchbay-cni/patchbay/placement/internal/volumes"
)

// sharedRefusal returns why the volume of a claim stays in a cluster, because another claim has it, too; "" for none has.
func sharedRefusal(s *scope.Scope, claim scope.Claim, source *v1alpha1.VolumeSource, from string) string {
	at := func(name string) volumes.Location {
		if c := s.Clusters[name]; c != nil {
			return location(c)
		}
		return volumes.Location{Name: name}
	}
	var others []volumes.Location
	for _, name := range claim.Shared[scope.VolumeKey(source)] {
		others = append(others, at(name))
	}
	return volumes.SharedRefusal(source.Driver, at(from), others)
}
