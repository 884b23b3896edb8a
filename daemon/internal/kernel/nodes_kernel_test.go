// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package kernel

import (
	"context"
	"fmt"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/vishvananda/netlink"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/netwatcher"
)

// fleet is an API server for some nodes: what one writes, all see.
type fleet struct {
	mu       sync.Mutex
	net      *network.Network
	status   map[string]v1.NodeNetworkStatus
	watchers map[string]*netwatcher.Reconciler
}

// member is the KubeClient and PodLinks of one node of the fleet.
type member struct {
	*fleet
	name string
}

func (m member) Networks(context.Context) ([]*network.Network, error) {
	return []*network.Network{m.net}, nil
}

func (m member) NodeNetworks(context.Context) ([]v1.NodeNetwork, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []v1.NodeNetwork
	for name, s := range m.status {
		all = append(all, v1.NodeNetwork{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: s})
	}
	return all, nil
}

func (m member) WriteStatus(_ context.Context, s v1.NodeNetworkStatus) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	// NICs are veths here, which a node reports because a network names them.
	m.status[m.name] = s
	m.triggerAll()
	return nil
}

func (m member) Links() (map[network.Link]bool, error) {
	id, _ := m.net.Link()
	return map[network.Link]bool{id: true}, nil
}

// triggerAll triggers a reconciliation of all nodes; the caller holds the lock.
func (f *fleet) triggerAll() {
	for _, r := range f.watchers {
		r.Trigger()
	}
}

// join starts a node's Reconciler, which runs until leave.
func (f *fleet) join(t *testing.T, name, host string) (leave func()) {
	t.Helper()
	r := netwatcher.New(netwatcher.Config{
		Node: name, Kernel: openKernel(t, host).Links(), Firewall: openFirewall(t, host), SourceGuard: openGuard(t, host), KubeClient: member{f, name}, Pods: member{f, name}, Log: logr.Discard(),
	})
	f.mu.Lock()
	f.watchers[name] = r
	f.mu.Unlock()
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = r.Run(ctx) })
	stop := sync.OnceFunc(func() { cancel(); wg.Wait() })
	t.Cleanup(stop)
	return func() {
		stop()
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.watchers, name)
		delete(f.status, name)
		f.triggerAll()
	}
}

// noMulticast makes the switch drop multicast frames.
func noMulticast(t *testing.T, host string, ports int) {
	t.Helper()
	inside(t, host, func() {
		for i := range ports {
			if out, err := exec.Command("bridge", "link", "set", "dev", fmt.Sprint("port", i+1), "mcast_flood", "off").CombinedOutput(); err != nil {
				t.Errorf("bridge: %v: %s", err, out)
			}
		}
	})
}

// On three nodes with VXLAN over a switch without multicast, every Pod reaches every other, also
// those of a node that joins, and no node sends to a node that has left.
func TestNodesJoinAndLeave(t *testing.T) {
	const nodes = 4
	hosts, sw := newSwitch(t, nodes, true)
	noMulticast(t, sw, nodes)
	f := &fleet{net: vxlanNetwork("backend", 700), status: map[string]v1.NodeNetworkStatus{}, watchers: map[string]*netwatcher.Reconciler{}}
	var pods []string
	add := func(i int) (leave func()) {
		leave = f.join(t, fmt.Sprint("node-", i), hosts[i])
		eventually(t, "the link on a node", func() bool { return hasLink(t, hosts[i], "vx_backend") })
		pods = append(pods, newNamespace(t))
		s := withDefaults(Slave{PodInterface: PodInterface{V4: podAddress(i)}, Parent: "vx_backend"}, pods[i])
		if _, err := openKernel(t, hosts[i]).Slaves().Attach(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		return leave
	}
	allReach := func(when string) {
		t.Helper()
		start := time.Now()
		for i := range pods {
			for j := range pods {
				if i != j && !echoes(t, pods[i], pods[j], podAddress(j).Addr().String(), time.Minute) {
					t.Errorf("%s: Pod %d does not reach Pod %d", when, i, j)
				}
			}
		}
		t.Logf("%s: every pair answered after %v", when, time.Since(start).Round(time.Millisecond))
	}
	for i := range nodes - 1 {
		add(i)
	}
	allReach("three nodes")
	leave := add(nodes - 1)
	allReach("a fourth has joined")
	leave()
	start := time.Now()
	eventually(t, "no entries of the node that left", func() bool {
		for i := range nodes - 1 {
			if entries(t, hosts[i])[vtep(nodes-1).String()] {
				return false
			}
		}
		return true
	})
	t.Logf("entries of the node that left are gone after %v", time.Since(start).Round(time.Millisecond))
	pods = pods[:nodes-1]
	allReach("it has left")
}

func hasLink(t *testing.T, host, name string) (found bool) {
	t.Helper()
	within(t, host, func(h *netlink.Handle) {
		_, err := h.LinkByName(name)
		found = err == nil
	})
	return found
}

// entries returns the VTEPs of default entries.
func entries(t *testing.T, host string) map[string]bool {
	t.Helper()
	state, err := openKernel(t, host).Links().State(t.Context())
	must(t, err)
	found := map[string]bool{}
	for _, l := range state.Links {
		for _, p := range l.Peers {
			found[p.String()] = true
		}
	}
	return found
}
