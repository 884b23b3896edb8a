// SPDX-License-Identifier: Apache-2.0

package services

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/svcwatcher"
)

// tenantSubnetTTL is how long TenantConfigs are used again: their status is large, and few Services
// have addresses in the subnets of nodes.
const tenantSubnetTTL = 30 * time.Second

// tenantSubnetCache reads allowedClusterSubnets of TenantConfigs, but only for Services with an address
// for which they matter.
type tenantSubnetCache struct {
	direct client.Reader

	mu    sync.Mutex
	known []*network.TenantConfig
	read  time.Time
}

// permittedFor returns the parts of the nodes' subnets that a Service's namespace may use.
func (s *tenantSubnetCache) permittedFor(ctx context.Context, source *svcwatcher.Snapshot) ([]netip.Prefix, error) {
	if !source.NeedsPermittedSubnets() {
		return nil, nil
	}
	all, err := s.tenantConfigs(ctx)
	if err != nil || len(all) == 0 {
		return nil, err
	}
	ns := &corev1.Namespace{}
	if err := s.direct.Get(ctx, client.ObjectKey{Name: source.Service.Namespace}, ns); err != nil {
		return nil, fmt.Errorf("read labels of namespace %s: %w", source.Service.Namespace, err)
	}
	var found []netip.Prefix
	for _, t := range all {
		if t.AppliesTo(ns.Labels) {
			found = append(found, t.ClusterSubnets...)
		}
	}
	return found, nil
}

// tenantConfigs returns the TenantConfigs with allowedClusterSubnets. An invalid one permits nothing, as
// in admission.
func (s *tenantSubnetCache) tenantConfigs(ctx context.Context) ([]*network.TenantConfig, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.read.IsZero() && time.Since(s.read) < tenantSubnetTTL {
		return s.known, nil
	}
	var list v1.TenantConfigList
	// The API server's watch cache is as fresh as any informer.
	if err := s.direct.List(ctx, &list, &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: "0"}}); err != nil {
		return nil, fmt.Errorf("list TenantConfigs: %w", err)
	}
	var known []*network.TenantConfig
	for i := range list.Items {
		if t, err := network.FromTenantConfig(&list.Items[i]); err == nil && len(t.ClusterSubnets) > 0 {
			known = append(known, t)
		}
	}
	s.known, s.read = slices.Clip(known), time.Now()
	return s.known, nil
}
