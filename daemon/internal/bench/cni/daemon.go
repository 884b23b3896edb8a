// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"sync"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
	"github.com/patchbay-cni/patchbay/daemon/internal/backend/macvlan"
	"github.com/patchbay-cni/patchbay/daemon/internal/firewall"
	"github.com/patchbay-cni/patchbay/daemon/internal/journal"
	"github.com/patchbay-cni/patchbay/daemon/internal/kernel"
	"github.com/patchbay-cni/patchbay/daemon/internal/server"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam"
)

func socketIn(dir string) string { return filepath.Join(dir, "run", "s") }

// serveDaemon is a daemon with the real server, use cases, journal and kernel; only
// the cluster is made up: every Pod asks for the one network, and its addresses
// come from a pool in memory, as they do from a node's hold.
func serveDaemon(ctx context.Context, o options) (err error) {
	j, err := journal.OpenContext(ctx, filepath.Join(o.dir, "state", "journal.db"), journal.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, j.Close()) }()
	k, err := kernel.Open("")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, k.Close()) }()
	guard, err := firewall.OpenSourceGuard("")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, guard.Close()) }()
	boot, err := journal.BootID()
	if err != nil {
		return err
	}
	fake, err := newCluster(j)
	if err != nil {
		return err
	}
	defer fake.background.Wait()
	return server.New(server.Config{
		Socket: socketIn(o.dir), PendingDir: filepath.Join(o.dir, "pending"), Log: logr.Discard(),
		Handler: attach.New(attach.Config{
			BootID: boot, Journal: j, KubeClient: fake, Addresses: fake, HostLinks: fake, NetworkNamespaces: fake, Publisher: fake,
			Backends: map[string]attach.Backend{"macvlan": macvlan.New(k, guard)},
		}),
	}).Run(ctx)
}

// cluster is everything behind the API server.
type cluster struct {
	net        *network.Network
	journal    attach.Journal
	background sync.WaitGroup
	mu         sync.Mutex
	pool       *ipam.Pool
}

func newCluster(j attach.Journal) (*cluster, error) {
	cidr := netip.MustParsePrefix("10.91.0.0/16")
	pool, err := ipam.New(ipam.Config{CIDR: cidr})
	if err != nil {
		return nil, fmt.Errorf("make pool: %w", err)
	}
	return &cluster{journal: j, pool: pool, net: &network.Network{
		Ref: network.Ref{Kind: "ClusterNetwork", Name: "bench"}, UID: "1", ID: "bench",
		Type: "macvlan", Device: parentLink, Prefix: "eth", V4: &network.Subnet{CIDR: cidr},
	}}, nil
}

func (c *cluster) Pod(_ context.Context, namespace, name, uid string) (*corev1.Pod, error) {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name, UID: types.UID(uid),
		Annotations: map[string]string{v1.InterfacesAnnotation: `[{"clusterNetwork":"bench","ip":"dynamic"}]`},
	}}, nil
}

func (c *cluster) Network(context.Context, network.Ref) (*network.Network, error) { return c.net, nil }

func (c *cluster) ReportFailure(*corev1.Pod, error) {}

func (c *cluster) ReportConflict(*corev1.Pod, *network.Network, error) {}

func (c *cluster) Quarantine(*network.Network, netip.Addr) bool { return false }

func (c *cluster) Check(context.Context, *network.Network) error { return nil }

func (c *cluster) Parent(context.Context, *network.Network) (string, error) { return parentLink, nil }

func (c *cluster) Exists(path string) (bool, error) {
	_, err := os.Stat(path)
	return err == nil, nil
}

func (c *cluster) Claim(context.Context, *network.Network, attach.AddressRequest, attach.AddressRequest) (a4, a6 netip.Addr, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	a4, ok := c.pool.AllocateNext()
	if !ok {
		err = errors.New("the pool is full")
	}
	return a4, a6, err
}

func (c *cluster) Discard(_ *network.Network, a4, _ netip.Addr) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pool.Release(a4)
}

func (c *cluster) Publish(*attach.Record) {}

// Release ends the record in the background, as the real publisher does.
func (c *cluster) Release(rec *attach.Record) {
	c.background.Go(func() {
		for i := range rec.Interfaces {
			c.Discard(&rec.Interfaces[i].Network, rec.Interfaces[i].V4.Addr(), netip.Addr{})
		}
		if err := c.journal.Delete(rec.ContainerID, rec.IfName); err != nil {
			fmt.Fprintln(os.Stderr, "cni: daemon:", err)
		}
	})
}
