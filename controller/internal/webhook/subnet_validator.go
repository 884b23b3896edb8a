// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/controller/internal/reserve"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/internal/tenant"
)

// subnetValidator checks the subnets that tenants choose.
type subnetValidator struct {
	reader    client.Reader
	allocator *reserve.Allocator
	ranges    ClusterRanges // or nil
}

// validate rejects a new or changed subnet of a TenantNetwork that its tenant may not use. Networks
// of other kinds belong to administrators.
func (s *subnetValidator) validate(ctx context.Context, n, before *network.Network) error {
	if n.Ref.Kind != v1.KindTenantNetwork || n.V4 == nil && n.V6 == nil {
		return nil
	}
	used, err := s.clusterRanges()
	if err != nil {
		return err
	}
	labels, err := namespaceLabels(ctx, s.reader, n.Ref.Namespace)
	if err != nil {
		return err
	}
	return s.allocator.CheckConfigs(ctx, func(configs []tenant.Config) error {
		return tenant.CheckSubnets(n, before, labels, configs, used)
	})
}

// clusterRanges returns the addresses that the cluster itself uses; nil when they are not watched.
func (s *subnetValidator) clusterRanges() (*network.ClusterRanges, error) {
	if s.ranges == nil {
		return nil, nil
	}
	used, err := s.ranges.Get()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", err, reserve.ErrUnavailable)
	}
	return used, nil
}

// isNodeAddress reports whether a node has an address, as far as is known. The node daemon checks
// again.
func (s *subnetValidator) isNodeAddress(a netip.Addr) bool {
	used, err := s.clusterRanges()
	return err == nil && used != nil && slices.ContainsFunc(used.Containing(a), func(r network.ClusterRange) bool {
		return r.Purpose == network.RangeNodes
	})
}

// warnings returns warnings for an administrator's network in the cluster's own ranges, which works
// except for Services.
func (s *subnetValidator) warnings(n *network.Network) []string {
	used, err := s.clusterRanges()
	if err != nil || used == nil || n.Ref.Kind == v1.KindTenantNetwork || n.Delegates() {
		return nil
	}
	var all []string
	for _, f := range []struct {
		field  string
		subnet *network.Subnet
	}{{"cidr", n.V4}, {"net6", n.V6}} {
		if f.subnet == nil {
			continue
		}
		if r, overlaps := used.Overlapping(f.subnet.CIDR); overlaps && r.Purpose != network.RangeNodes && r.Purpose != network.RangeNodeSubnets {
			all = append(all, fmt.Sprintf("%s: spec.Options.%s %s overlaps %s: Services do not publish the addresses in both",
				n.Ref, f.field, f.subnet.CIDR, r))
		}
	}
	return all
}
