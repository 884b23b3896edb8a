// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package kernel

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/netwatcher"
)

// cluster is netwatcher's KubeClient and PodLinks.
type cluster struct {
	mu     sync.Mutex
	nets   []*network.Network
	nodes  []v1.NodeNetwork
	status v1.NodeNetworkStatus
}

func (c *cluster) Networks(context.Context) ([]*network.Network, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.nets, nil
}

func (c *cluster) NodeNetworks(context.Context) ([]v1.NodeNetwork, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append(c.nodes, v1.NodeNetwork{ObjectMeta: metav1.ObjectMeta{Name: "self"}, Status: c.status}), nil
}

func (c *cluster) WriteStatus(_ context.Context, s v1.NodeNetworkStatus) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.status = s
	return nil
}

func (c *cluster) Links() (map[network.Link]bool, error) { return nil, nil }

func vxlanNetwork(id string, vni int) *network.Network {
	return &network.Network{
		Ref: network.Ref{Kind: "ClusterNetwork", Name: id}, UID: id, ID: id, Type: "macvlan", Device: "ens4", VXLAN: vni,
		Created: time.Unix(int64(vni), 0),
	}
}

func watcherOf(t *testing.T, host string, c *cluster) *netwatcher.Reconciler {
	t.Helper()
	return netwatcher.New(netwatcher.Config{
		Node: "self", Kernel: openKernel(t, host).Links(), Firewall: openFirewall(t, host), SourceGuard: openGuard(t, host), KubeClient: c, Pods: c, Log: logr.Discard(),
	})
}

func otherNode(name, vtep string) v1.NodeNetwork {
	nic := v1.NIC{Name: "ens4", Addresses: []string{vtep + "/24"}}
	return v1.NodeNetwork{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: v1.NodeNetworkStatus{NICs: []v1.NIC{nic}}}
}

// One reconciliation repairs any damage to a link, and the next one changes nothing.
func TestReconcileRepairs(t *testing.T) {
	for _, link := range []hostLinkCase{backendCase(), storageCase()} {
		t.Run(link.kind, func(t *testing.T) {
			needs(t, link.kind)
			for name, tc := range damages(link.name) {
				t.Run(name, func(t *testing.T) { checkRepair(t, link, tc) })
			}
		})
	}
}

// hostLinkCase is a network and the dump of its link.
type hostLinkCase struct {
	kind, name, want string
	net              *network.Network
}

func backendCase() hostLinkCase {
	return hostLinkCase{kind: "vxlan", name: "vx_backend", net: vxlanNetwork("backend", 700), want: `
link vx_backend vxlan 700 port 4789 local 192.0.2.1 on ens4 learning true mtu 1450 up alias patchbay:vxlan/700 disable_ipv6=1 addr_gen_mode=1
  fdb 00:00:00:00:00:00 dst 192.0.2.2
`}
}

func storageCase() hostLinkCase {
	n := vxlanNetwork("storage", 0)
	n.VLAN = 500
	return hostLinkCase{kind: "vlan", name: "storage.500", net: n, want: `
link storage.500 vlan 500 on ens4 mtu 1500 up alias patchbay:vlan/ens4/500 disable_ipv6=1 addr_gen_mode=1
`}
}

type damage struct {
	reason string
	do     func(t *testing.T, h *netlink.Handle, k *Host)
}

// damages are changes of a link by users and crashes.
func damages(name string) map[string]damage {
	all := map[string]damage{
		"Nothing": {"The link is created.", func(*testing.T, *netlink.Handle, *Host) {}},
		"Deleted": {"A user deleted the link.", func(t *testing.T, h *netlink.Handle, _ *Host) {
			t.Helper()
			must(t, h.LinkDel(find(t, h, name)))
		}},
		"Down": {"A user set the link down.", func(t *testing.T, h *netlink.Handle, _ *Host) {
			t.Helper()
			must(t, h.LinkSetDown(find(t, h, name)))
		}},
		"MTU": {"A user changed the MTU.", func(t *testing.T, h *netlink.Handle, _ *Host) {
			t.Helper()
			must(t, h.LinkSetMTU(find(t, h, name), 1300))
		}},
		"Addresses": {"With addresses, Pods could reach the node over the link.", func(t *testing.T, h *netlink.Handle, _ *Host) {
			t.Helper()
			must(t, sysctl{"ipv6/conf/" + name + "/disable_ipv6", "0"}.write())
			for _, a := range []string{"10.70.0.254/16", "fd00:70::fe/64"} {
				addr, err := netlink.ParseAddr(a)
				must(t, err)
				must(t, h.AddrAdd(find(t, h, name), addr))
			}
		}},
		"Entries": {"A user added and deleted forwarding entries.", func(t *testing.T, h *netlink.Handle, k *Host) {
			t.Helper()
			index := find(t, h, name).Attrs().Index
			must(t, k.conn.updatePeers(index, []netip.Addr{vtep(8)}, []netip.Addr{vtep(1)}))
		}},
		"Learned": {"The link learned an entry from an unknown host.", func(t *testing.T, h *netlink.Handle, k *Host) {
			t.Helper()
			index := find(t, h, name).Attrs().Index
			must(t, k.conn.send(unix.RTM_NEWNEIGH, unix.NLM_F_CREATE, fdbMessage(index, mac(t, "02:ba:d0:00:00:01"), vtep(8))...))
		}},
		"Renamed": {"A user renamed the link.", func(t *testing.T, h *netlink.Handle, _ *Host) {
			t.Helper()
			link := find(t, h, name)
			must(t, h.LinkSetDown(link))
			must(t, h.LinkSetName(link, "other"))
		}},
		"Unfinished": {"The daemon ended before it had finished the link.", func(t *testing.T, h *netlink.Handle, _ *Host) {
			t.Helper()
			link := find(t, h, name)
			must(t, h.LinkSetAlias(link, ""))
			must(t, h.LinkSetGroup(link, unfinishedGroup))
		}},
		"ParentDown": {"A user set the NIC down.", func(t *testing.T, h *netlink.Handle, _ *Host) {
			t.Helper()
			must(t, h.LinkSetDown(find(t, h, "ens4")))
			if !strings.HasPrefix(name, "vx_") {
				eventually(t, name+" set down with its NIC, which Linux 7.2 does in a work queue", func() bool {
					return find(t, h, name).Attrs().Flags&net.FlagUp == 0
				})
			}
		}},
	}
	if name != "vx_backend" {
		delete(all, "Entries")
		delete(all, "Learned")
	}
	return all
}

func checkRepair(t *testing.T, link hostLinkCase, tc damage) {
	t.Helper()
	host := newTrunk(t, 1, true)[0]
	before := dump(t, host)
	k := openKernel(t, host)
	c := &cluster{nets: []*network.Network{link.net}, nodes: []v1.NodeNetwork{otherNode("b", "192.0.2.2")}}
	r := watcherOf(t, host, c)
	for range 2 {
		if err := r.Reconcile(t.Context()); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(before+link.want[1:], dump(t, host)); diff != "" {
			t.Fatalf("%s -want +got\n%s", tc.reason, diff)
		}
		within(t, host, func(h *netlink.Handle) { tc.do(t, h, k) })
	}
	if err := r.Reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	// The kernel itself reports changes of carriers with a delay.
	eventually(t, "a reconciliation without changes", func() bool {
		return changes(t, host, func() { must(t, r.Reconcile(t.Context())) }) == 0
	})
}

// changes counts the kernel's events of links, addresses, routes and forwarding entries while f runs.
func changes(t *testing.T, path string, f func()) int {
	t.Helper()
	var sock *nl.NetlinkSocket
	inside(t, path, func() {
		var err error
		sock, err = nl.Subscribe(unix.NETLINK_ROUTE, unix.RTNLGRP_LINK, unix.RTNLGRP_NEIGH,
			unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR, unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE)
		must(t, err)
	})
	defer sock.Close()
	f()
	must(t, sock.SetReceiveTimeout(&unix.Timeval{Usec: 50_000}))
	n := 0
	for {
		msgs, _, err := sock.Receive()
		if err != nil {
			return n
		}
		n += len(msgs)
	}
}

// Run reacts to the kernel's events and to changes of networks and nodes.
func TestReconcileRuns(t *testing.T) {
	host := newTrunk(t, 1, true)[0]
	c := &cluster{nets: []*network.Network{vxlanNetwork("backend", 700)}}
	r := watcherOf(t, host, c)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = r.Run(ctx) })
	defer wg.Wait()
	defer cancel()
	has := func(text string) func() bool {
		return func() bool { return strings.Contains(dump(t, host), text) }
	}
	eventually(t, "the link", has("vx_backend"))
	within(t, host, func(h *netlink.Handle) { must(t, h.LinkDel(find(t, h, "vx_backend"))) })
	eventually(t, "the link that a user deleted", has("link vx_backend"))
	within(t, host, func(h *netlink.Handle) { must(t, h.LinkSetDown(find(t, h, "ens4"))) })
	eventually(t, "the NIC that a user set down", has("link ens4 veth mtu 1500 up"))

	c.mu.Lock()
	c.nodes = []v1.NodeNetwork{otherNode("b", "192.0.2.2")}
	c.mu.Unlock()
	r.Trigger()
	eventually(t, "the entry of a node that joined", has("dst 192.0.2.2"))

	c.mu.Lock()
	c.nets = nil
	c.mu.Unlock()
	r.Trigger()
	eventually(t, "the deletion of the link of a deleted network", func() bool { return !has("vx_backend")() })
}

// A link that Patchbay does not manage is not changed, whatever its name.
func TestUnmanagedLinkStays(t *testing.T) {
	host := newTrunk(t, 1, true)[0]
	within(t, host, func(h *netlink.Handle) {
		attrs := netlink.LinkAttrs{Name: "vx_backend", TxQLen: -1}
		must(t, h.LinkAdd(&netlink.Vxlan{LinkAttrs: attrs, VxlanId: 700, Port: vxlanPort, VtepDevIndex: find(t, h, "ens4").Attrs().Index}))
	})
	before := dump(t, host)
	c := &cluster{nets: []*network.Network{vxlanNetwork("backend", 700), vxlanNetwork("fine", 701)}}
	r := watcherOf(t, host, c)
	if err := r.Reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	if after := dump(t, host); !strings.HasPrefix(after, strings.SplitAfter(before, "link vx_backend")[0]) || !strings.Contains(after, "vx_fine") {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}
	k := openKernel(t, host)
	for _, op := range []netwatcher.Op{netwatcher.OpDelete, netwatcher.OpUpdate, netwatcher.OpUpdatePeers, netwatcher.OpCreate} {
		link := vxlanSpec("vx_backend", 700, "192.0.2.1", "192.0.2.2")
		if err := k.Links().Apply(t.Context(), netwatcher.Change{Op: op, Link: link, Add: link.Peers}); err == nil {
			t.Errorf("%s of an unmanaged link succeeded", op)
		}
	}
	c.nets = nil
	if err := r.Reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, dump(t, host)); diff != "" {
		t.Errorf("-before +after\n%s", diff)
	}
}
