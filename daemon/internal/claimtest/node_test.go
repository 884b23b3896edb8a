// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package claimtest_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/daemon/internal/kubeclient"
	"github.com/patchbay-cni/patchbay/internal/kube"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam/allocator"
	"github.com/patchbay-cni/patchbay/ipam/status"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

func TestMain(m *testing.M) { apitest.Main(m) }

// node is a node with an allocator.
type node struct {
	*allocator.Allocator
	name string
	env  *apitest.Env
	ns   string // the namespace of its DanmEps
}

// start starts an incarnation of a node's allocator until the end of the test.
func start(t *testing.T, env *apitest.Env, ns, name string, incarnation int64, config *rest.Config) *node {
	t.Helper()
	n := &node{newAllocator(t, config, name, incarnation), name, env, ns}
	t.Cleanup(n.Close)
	return n
}

// newAllocator returns an allocator without a warm pool.
func newAllocator(t *testing.T, config *rest.Config, name string, incarnation int64) *allocator.Allocator {
	t.Helper()
	return allocator.New(newStore(t, config, name), allocator.Config{Node: name, NodeUID: "uid-of-" + name, Incarnation: incarnation, WarmPoolSize: -1, Cooldown: -1})
}

// newStore returns the product's store over a connection of its own.
func newStore(t *testing.T, config *rest.Config, name string) *kube.Store {
	t.Helper()
	return kube.NewStore(connect(t, config, name))
}

// connect returns a new connection with the rights that deployments/ gives a node daemon.
func connect(t *testing.T, config *rest.Config, name string) client.Client {
	t.Helper()
	config = rest.CopyConfig(config)
	config.Impersonate = apitest.NodeDaemon(name)
	config.Dial = (&net.Dialer{}).DialContext // a new function, so that client-go shares no connection
	c, err := kubeclient.Connect(config, name)
	if err != nil {
		t.Fatal(err)
	}
	return c.Direct
}

// claim claims one dynamic IPv4 address.
func (n *node) claim(ctx context.Context, net *network.Network) (netip.Addr, error) {
	a, _, err := n.Claim(ctx, net, allocator.AddressRequest{Dynamic: true}, allocator.AddressRequest{})
	if err != nil {
		return a, fmt.Errorf("claim on %s: %w", n.name, err)
	}
	return a, nil
}

// claimWithRetry repeats claim while the error is ErrTryAgain.
func (n *node) claimWithRetry(ctx context.Context, net *network.Network) (a netip.Addr, err error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	for {
		a, err = n.claim(ctx, net)
		if !errors.Is(err, status.ErrTryAgain) || ctx.Err() != nil {
			return a, err
		}
	}
}

// publish creates the DanmEp of a claim. It may be repeated with the same name after a lost response.
func (n *node) publish(ctx context.Context, net *network.Network, a netip.Addr, name string) (*v1.DanmEp, error) {
	ep := &v1.DanmEp{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: n.ns},
		Spec: v1.DanmEpSpec{
			NetworkName: net.Ref.Name, NetworkUID: net.UID, APIType: net.Ref.Kind, NetworkType: net.Type,
			EndpointID: a.String(), Host: n.name, HostUID: "uid-of-" + n.name, Pod: "pod", CID: "sandbox",
			Interface: v1.DanmEpInterface{Name: "eth0", Address: netip.PrefixFrom(a, net.V4.CIDR.Bits()).String()},
		},
	}
	if err := n.env.Client.Create(ctx, ep); err != nil && !apierrors.IsAlreadyExists(err) {
		return nil, fmt.Errorf("publish on %s: %w", n.name, err)
	}
	n.MarkPublished(network.KeyOf(net), ep.Name, a, netip.Addr{})
	return ep, nil
}

// release returns the address to the entry, deletes the DanmEp and frees the address.
func (n *node) release(ctx context.Context, net *network.Network, a netip.Addr, ep *v1.DanmEp) error {
	key := network.KeyOf(net)
	if err := n.ReturnToEntry(ctx, key, ep.Name, a, netip.Addr{}); err != nil {
		return fmt.Errorf("return on %s: %w", n.name, err)
	}
	if err := client.IgnoreNotFound(n.env.Client.Delete(ctx, ep)); err != nil {
		return fmt.Errorf("delete DanmEp on %s: %w", n.name, err)
	}
	if err := n.Free(ctx, key, ep.Name, a, netip.Addr{}); err != nil {
		return fmt.Errorf("free on %s: %w", n.name, err)
	}
	return nil
}

// addressRegistry detects an address that is in use twice.
type addressRegistry struct {
	mu    sync.Mutex
	users map[networkAddress]string
}

// networkAddress is an address of a network.
type networkAddress struct {
	network.Key
	netip.Addr
}

// newRegistry returns an empty registry.
func newRegistry() *addressRegistry { return &addressRegistry{users: map[networkAddress]string{}} }

// acquire sets the user of an address. It returns errDuplicateAddress if the address has another user.
func (r *addressRegistry) acquire(key network.Key, a netip.Addr, user string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if other := r.users[networkAddress{key, a}]; other != "" {
		return fmt.Errorf("%w: %s got %s of %v, which %s uses", errDuplicateAddress, user, a, key.Ref, other)
	}
	r.users[networkAddress{key, a}] = user
	return nil
}

// errDuplicateAddress is a violation that no retry may hide.
var errDuplicateAddress = errors.New("an address is in use twice")

// release removes the user of an address. It must be called before the address is freed. It returns false
// if the address has another user.
func (r *addressRegistry) release(key network.Key, a netip.Addr, user string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.users[networkAddress{key, a}] != user {
		return false
	}
	delete(r.users, networkAddress{key, a})
	return true
}

// create creates a network with this subnet.
func create(t *testing.T, env *apitest.Env, cidr string) *network.Network {
	t.Helper()
	o := &v1.ClusterNetwork{
		ObjectMeta: metav1.ObjectMeta{Name: apitest.Name("claims")},
		Spec:       v1.NetworkSpec{NetworkID: "net", NetworkType: "macvlan", Options: v1.NetworkOptions{Device: "ens4", CIDR: cidr}},
	}
	if err := env.Client.Create(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	n, err := network.FromClusterNetwork(o)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
