// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

// device is the NIC of all networks, config the TenantConfig that offers it.
const device, tenantConfigName = "ens4", "tenants"

// createTenantConfig creates the one range.
func createTenantConfig(ctx context.Context, env *apitest.Env, networks int) error {
	c := &v1.TenantConfig{ObjectMeta: metav1.ObjectMeta{Name: tenantConfigName}}
	c.HostDevices = []v1.HostDevice{{Name: device, VNIType: "vxlan", VNIRange: fmt.Sprintf("1-%d", networks)}}
	if err := env.Client.Create(ctx, c); err != nil {
		return fmt.Errorf("create TenantConfig: %w", err)
	}
	return nil
}

// createNetworks makes all networks and returns how long each took, as its client saw it.
func createNetworks(ctx context.Context, env *apitest.Env, o options, assigned bool) ([]time.Duration, error) {
	took := make([]time.Duration, o.networks)
	var next atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	for range o.clients {
		c, err := client.New(env.Config, client.Options{Scheme: env.Client.Scheme()}) // a connection of its own
		if err != nil {
			return nil, fmt.Errorf("make client: %w", err)
		}
		g.Go(func() error {
			for i := int(next.Add(1)) - 1; i < o.networks; i = int(next.Add(1)) - 1 {
				n := network(i, assigned)
				begin := time.Now()
				if err := c.Create(ctx, n); err != nil {
					return fmt.Errorf("create %s: %w", n.Name, err)
				}
				took[i] = time.Since(begin)
			}
			return nil
		})
	}
	return took, g.Wait()
}

// network is what a tenant writes, or with nobody to assign, all of it.
func network(i int, assigned bool) *v1.TenantNetwork {
	n := &v1.TenantNetwork{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: fmt.Sprintf("net%d", i)}}
	n.Spec = v1.NetworkSpec{NetworkID: fmt.Sprintf("n%d", i), Options: v1.NetworkOptions{CIDR: "10.0.0.0/24"}}
	if !assigned {
		n.Spec.Options.Device, n.Spec.Options.VXLAN = device, int32(i+1)
	}
	return n
}

// checkAssigned finds out whether each network has a VNI.
func checkAssigned(ctx context.Context, env *apitest.Env, networks int) error {
	var c v1.TenantConfig
	if err := env.Client.Get(ctx, client.ObjectKey{Name: tenantConfigName}, &c); err != nil {
		return fmt.Errorf("read reservations: %w", err)
	}
	reserved := 0
	for _, page := range c.Status.Reservations {
		reserved += strings.Count(page, ", ") + 1
	}
	if reserved != networks {
		return fmt.Errorf("TenantConfig %s has %d reservations, want %d", tenantConfigName, reserved, networks)
	}
	return nil
}
