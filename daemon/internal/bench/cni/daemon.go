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
	"github.com/patchbay-cni/patchbay/daemon/internal/backend/slave"
	"github.com/patchbay-cni/patchbay/daemon/internal/firewall"
	"github.com/patchbay-cni/patchbay/daemon/internal/journal"
	"github.com/patchbay-cni/patchbay/daemon/internal/kernel"
	"github.com/patchbay-cni/patchbay/daemon/internal/server"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam"
)

// socketIn returns the socket of the daemon without a cluster.
func socketIn(dir string) string { return filepath.Join(dir, "run", "s") }

// serveDaemon runs a daemon with the real server, attach.Service, journal and kernel, and with a fake
// cluster. Each Pod requests the one network, whose addresses come from a pool in memory, like those of a
// warm pool.
func serveDaemon(ctx context.Context, o options) (err error) {
	j, err := journal.OpenContext(ctx, filepath.Join(o.dir, "state", "journal.db"), journal.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, j.Close()) }()
	host, err := kernel.Open("")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, host.Close()) }()
	guard, err := firewall.OpenSourceGuard("")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, guard.Close()) }()
	bootID, err := journal.BootID()
	if err != nil {
		return err
	}
	fake, err := newFakeCluster(j)
	if err != nil {
		return err
	}
	defer fake.background.Wait()
	return server.New(server.Config{
		Socket: socketIn(o.dir), PendingDir: filepath.Join(o.dir, "pending"), Log: logr.Discard(),
		Handler: attach.New(attach.Config{
			BootID: bootID, Journal: j, KubeClient: fake, Addresses: fake, HostLinks: fake, NetworkNamespaces: fake, Publisher: fake,
			Backends: map[string]attach.Backend{"macvlan": slave.NewMACVLAN(host.Slaves(), guard)},
		}),
	}).Run(ctx)
}

// fakeCluster implements the interfaces of package attach without an API server.
type fakeCluster struct {
	net        *network.Network
	journal    attach.Journal
	background sync.WaitGroup
	mu         sync.Mutex
	pool       *ipam.Pool
}

// newFakeCluster returns a cluster with one network.
func newFakeCluster(j attach.Journal) (*fakeCluster, error) {
	cidr := netip.MustParsePrefix("10.91.0.0/16")
	pool, err := ipam.New(ipam.Config{CIDR: cidr})
	if err != nil {
		return nil, fmt.Errorf("make pool: %w", err)
	}
	return &fakeCluster{journal: j, pool: pool, net: &network.Network{
		Ref: network.Ref{Kind: "ClusterNetwork", Name: "bench"}, UID: "1", ID: "bench",
		Type: "macvlan", Device: parentLink, Prefix: "eth", V4: &network.Subnet{CIDR: cidr},
	}}, nil
}

// Pod implements attach.KubeClient.
func (c *fakeCluster) Pod(_ context.Context, namespace, name, uid string) (*corev1.Pod, error) {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name, UID: types.UID(uid),
		Annotations: map[string]string{v1.InterfacesAnnotation: `[{"clusterNetwork":"bench","ip":"dynamic"}]`},
	}}, nil
}

// PodWithSpec implements attach.KubeClient.
func (*fakeCluster) PodWithSpec(_ context.Context, pod *corev1.Pod) (*corev1.Pod, error) {
	return pod, nil
}

// Network implements attach.KubeClient.
func (c *fakeCluster) Network(context.Context, network.Ref) (*network.Network, error) {
	return c.net, nil
}

// ReportFailure implements attach.KubeClient.
func (c *fakeCluster) ReportFailure(*corev1.Pod, error) string {
	return v1.ReasonNetworkAttachmentFailed
}

// ReportConflict implements attach.KubeClient.
func (c *fakeCluster) ReportConflict(*corev1.Pod, *network.Network, error) {}

// Quarantine implements attach.Addresses.
func (c *fakeCluster) Quarantine(*network.Network, netip.Addr) bool { return false }

// Check implements attach.HostLinks.
func (c *fakeCluster) Check(context.Context, *network.Network) error { return nil }

// Parent implements attach.HostLinks.
func (c *fakeCluster) Parent(context.Context, *network.Network) (string, error) {
	return parentLink, nil
}

// Exists implements attach.NetworkNamespaces.
func (c *fakeCluster) Exists(path string) (bool, error) {
	_, err := os.Stat(path)
	return err == nil, nil
}

// Claim implements attach.Addresses.
func (c *fakeCluster) Claim(context.Context, *network.Network, attach.AddressRequest, attach.AddressRequest) (a4, a6 netip.Addr, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	a4, ok := c.pool.AllocateNext()
	if !ok {
		err = errors.New("the pool is full")
	}
	return a4, a6, err
}

// Discard implements attach.Addresses.
func (c *fakeCluster) Discard(_ *network.Network, a4, _ netip.Addr) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pool.Release(a4)
}

// Publish implements attach.Publisher.
func (c *fakeCluster) Publish(*attach.Record) {}

// Release frees the addresses and deletes the record in the background, as danmep.Publisher does.
func (c *fakeCluster) Release(rec *attach.Record) {
	c.background.Go(func() {
		for i := range rec.Interfaces {
			c.Discard(&rec.Interfaces[i].Network, rec.Interfaces[i].V4.Addr(), netip.Addr{})
		}
		if err := c.journal.Delete(rec.ContainerID, rec.IfName); err != nil {
			fmt.Fprintln(os.Stderr, "cni: daemon:", err)
		}
	})
}
