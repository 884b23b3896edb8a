// SPDX-License-Identifier: Apache-2.0

// Package bed has what benchmarks with a real API server share: sample networks, and stores with
// connections of their own.
package bed

import (
	"context"
	"fmt"
	"net"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/daemon/internal/kubeclient"
	"github.com/patchbay-cni/patchbay/internal/kube"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

// Store returns the product's store over a connection of its own.
func Store(env *apitest.Env) (*kube.Store, error) {
	config := env.ControlPlane.RESTConfig()
	config.Dial = (&net.Dialer{}).DialContext // a new function, so that client-go shares no connection
	c, err := kubeclient.Connect(config, "unused")
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	return kube.NewStore(c.Direct), nil
}

// Network creates a network of type macvlan with that IPv4 subnet.
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
