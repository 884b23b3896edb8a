// SPDX-License-Identifier: Apache-2.0

// Package bed is what benchmarks with a real API server have in common: networks, and
// connections that nobody shares.
package bed

import (
	"context"
	"fmt"
	"net"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/daemon/internal/cluster"
	"github.com/patchbay-cni/patchbay/internal/kube"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

// Store returns the product's own store over a connection that no other client shares.
func Store(env *apitest.Env) (*kube.Store, error) {
	config := env.ControlPlane.RESTConfig()
	config.Dial = (&net.Dialer{}).DialContext // a dialer of its own keeps it out of client-go's cache
	c, err := cluster.Connect(config, "unused")
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	return kube.NewStore(c.Direct), nil
}

// Network creates a network of MACVLAN links with that IPv4 subnet.
func Network(ctx context.Context, c client.Client, cidr string) (*network.Network, error) {
	o := &v1.ClusterNetwork{
		ObjectMeta: metav1.ObjectMeta{Name: apitest.Name("bench")},
		Spec: v1.NetworkSpec{NetworkID: "bench", NetworkType: v1.TypeMACVLAN, Options: v1.NetworkOptions{
			Device: "ens4", CIDR: cidr,
		}},
	}
	if err := c.Create(ctx, o); err != nil {
		return nil, fmt.Errorf("create network: %w", err)
	}
	n, err := network.FromClusterNetwork(o)
	if err != nil {
		return nil, fmt.Errorf("read network: %w", err)
	}
	return n, nil
}
