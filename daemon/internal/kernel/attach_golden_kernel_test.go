// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package kernel

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/netwatcher"
)

// requestCounter counts the requests of a Host.
type requestCounter struct {
	// all requests, and those that change something.
	all, changing atomic.Int64
}

// countRequests counts the requests of a Host.
func countRequests(k *Host) *requestCounter {
	c := &requestCounter{}
	k.conn.observe = func(kind int) {
		c.all.Add(1)
		switch kind {
		case unix.RTM_GETLINK, unix.RTM_GETADDR, unix.RTM_GETNEIGH, unix.RTM_GETQDISC, unix.RTM_GETTFILTER:
		default:
			c.changing.Add(1)
		}
	}
	return c
}

// take returns the numbers since the last take.
func (c *requestCounter) take() (all, changing int64) { return c.all.Swap(0), c.changing.Swap(0) }

// netOn returns a network on a NIC: a VLAN if id is positive, a VXLAN if it is negative, and the NIC
// itself if it is 0. Networks are ordered by age; 1 is the oldest.
func netOn(age int, name, nic string, id int, more ...func(*network.Network)) *network.Network {
	n := &network.Network{
		Ref: network.Ref{Kind: "ClusterNetwork", Name: name}, UID: name, ID: name, Type: "macvlan", Device: nic,
		VLAN: max(id, 0), VXLAN: max(-id, 0), Created: time.Unix(int64(age), 0),
	}
	for _, m := range more {
		m(n)
	}
	return n
}

// links returns the part of a dump for links whose name has one of the prefixes.
func links(dump string, prefixes ...string) string {
	var b strings.Builder
	keep := false
	for line := range strings.Lines(dump) {
		if name, ok := strings.CutPrefix(line, "link "); ok {
			keep = false
			for _, p := range prefixes {
				keep = keep || strings.HasPrefix(name, p)
			}
		}
		if keep {
			b.WriteString(line)
		}
	}
	return b.String()
}

// step is a change of the input, and the dump of the links after it.
type step struct {
	reason string
	// do changes networks, nodes or links; nil changes nothing.
	do   func(t *testing.T, h *netlink.Handle, c *cluster)
	want string
	// contains is part of the error of a link or a refused network.
	contains string
}

// Every input is reconciled twice: the second time nothing is changed.
func TestLinksGolden(t *testing.T) {
	needs(t, "vlan")
	nets := func(all ...*network.Network) func(*testing.T, *netlink.Handle, *cluster) {
		return func(_ *testing.T, _ *netlink.Handle, c *cluster) { c.nets = all }
	}
	mtu := func(nic string, mtu int) func(*testing.T, *netlink.Handle, *cluster) {
		return func(t *testing.T, h *netlink.Handle, _ *cluster) {
			t.Helper()
			must(t, h.LinkSetMTU(find(t, h, nic), mtu))
		}
	}
	const (
		sealed  = " disable_ipv6=1 addr_gen_mode=1\n"
		storage = "link storage.500 vlan 500 on ens4 mtu 1500 up alias patchbay:vlan/ens4/500" + sealed
		backend = "link vx_backend vxlan 700 port 4789 local 192.0.2.1 on ens4 learning true mtu 1450 up alias patchbay:vxlan/700" + sealed
		peer2   = "  fdb 00:00:00:00:00:00 dst 192.0.2.2\n"
		peer3   = "  fdb 00:00:00:00:00:00 dst 192.0.2.3\n"
	)
	cases := map[string][]step{
		"VLAN": {
			{reason: "The link is created.", do: nets(netOn(1, "storage", "ens4", 500)), want: storage},
			{reason: "The second network shares the link.", do: nets(netOn(1, "storage", "ens4", 500), netOn(2, "other", "ens4", 500)), want: storage},
			{reason: "After the oldest network was deleted, the next one names the link.", do: nets(netOn(2, "other", "ens4", 500)), want: strings.Replace(storage, "storage.500", "other.500", 1)},
			{reason: "Another VLAN is another link.", do: nets(netOn(2, "other", "ens4", 501)), want: "link other.501 vlan 501 on ens4 mtu 1500 up alias patchbay:vlan/ens4/501" + sealed},
			{reason: "The link is deleted with the last network.", do: nets()},
		},
		"VXLAN": {
			{reason: "There is one other node.", do: func(_ *testing.T, _ *netlink.Handle, c *cluster) {
				c.nets, c.nodes = []*network.Network{netOn(1, "backend", "ens4", -700)}, []v1.NodeNetwork{otherNode("b", "192.0.2.2")}
			}, want: backend + peer2},
			{reason: "A node joins.", do: func(_ *testing.T, _ *netlink.Handle, c *cluster) {
				c.nodes = append(c.nodes, otherNode("c", "192.0.2.3"))
			}, want: backend + peer2 + peer3},
			{reason: "A node leaves.", do: func(_ *testing.T, _ *netlink.Handle, c *cluster) { c.nodes = c.nodes[1:] }, want: backend + peer3},
			{reason: "The NIC's first address changes.", do: func(t *testing.T, h *netlink.Handle, _ *cluster) {
				t.Helper()
				nic := find(t, h, "ens4")
				for _, op := range []func(netlink.Link, *netlink.Addr) error{h.AddrDel, h.AddrAdd} {
					a, err := netlink.ParseAddr(map[bool]string{true: "192.0.2.1/24", false: "192.0.2.44/24"}[hasAddress(t, h, nic)])
					must(t, err)
					must(t, op(nic, a))
				}
			}, want: strings.Replace(backend, "192.0.2.1", "192.0.2.44", 1) + peer3},
			{reason: "The NIC has no address any more: the link stays with an error.", do: func(t *testing.T, h *netlink.Handle, _ *cluster) {
				t.Helper()
				a, err := netlink.ParseAddr("192.0.2.44/24")
				must(t, err)
				must(t, h.AddrDel(find(t, h, "ens4"), a))
			}, want: strings.Replace(backend, "192.0.2.1", "192.0.2.44", 1) + peer3, contains: "no global address"},
		},
		"MTU": {
			{reason: "A VLAN has the MTU of its NIC, a VXLAN 50 bytes less.", do: nets(netOn(1, "storage", "ens4", 500), netOn(2, "backend", "ens4", -700)), want: storage + backend},
			{reason: "The NIC's MTU is increased.", do: mtu("ens4", 9000), want: strings.ReplaceAll(strings.ReplaceAll(storage+backend, "mtu 1500", "mtu 9000"), "mtu 1450", "mtu 8950")},
			{reason: "The NIC's MTU is decreased.", do: mtu("ens4", 1400), want: strings.ReplaceAll(strings.ReplaceAll(storage+backend, "mtu 1500", "mtu 1400"), "mtu 1450", "mtu 1350")},
			{reason: "A network requests a larger MTU: it is refused, and the link stays.", do: nets(netOn(1, "storage", "ens4", 500), netOn(2, "jumbo", "ens4", 500, func(n *network.Network) { n.MTU = 9000 })), want: strings.ReplaceAll(storage, "mtu 1500", "mtu 1400"), contains: "mtu too large"},
		},
		"Taken": {
			{reason: "The younger network of a VNI on another NIC is refused.", do: nets(netOn(1, "backend", "ens4", -700), netOn(2, "young", "ens5", -700)), want: backend, contains: "or another vxlan"},
			{reason: "The younger network with the same link name is refused.", do: nets(netOn(1, "storage", "ens4", 500), netOn(2, "young", "ens5", 500, func(n *network.Network) { n.ID = "storage" })), want: storage, contains: "use another NetworkID"},
		},
		"NIC": {
			{reason: "The NIC does not exist.", do: nets(netOn(1, "far", "ens9", 5)), contains: "ens9: NIC not found on this node"},
			{reason: "The NIC is added, and set up.", do: func(t *testing.T, h *netlink.Handle, _ *cluster) {
				t.Helper()
				must(t, h.LinkAdd(&netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Name: "ens9", MTU: 1500, TxQLen: -1}}))
				quiet(t, "ens9")
			}, want: "link far.5 vlan 5 on ens9 mtu 1500 up alias patchbay:vlan/ens9/5" + sealed},
			{reason: "The NIC is renamed: its link is deleted.", do: func(t *testing.T, h *netlink.Handle, _ *cluster) {
				t.Helper()
				nic := find(t, h, "ens9")
				must(t, h.LinkSetDown(nic))
				must(t, h.LinkSetName(nic, "ens9old"))
			}, contains: "ens9: NIC not found on this node"},
			{reason: "Another NIC of the name is added.", do: func(t *testing.T, h *netlink.Handle, _ *cluster) {
				t.Helper()
				must(t, h.LinkAdd(&netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Name: "ens9", MTU: 9000, TxQLen: -1}}))
				quiet(t, "ens9")
			}, want: "link far.5 vlan 5 on ens9 mtu 9000 up alias patchbay:vlan/ens9/5" + sealed},
			{reason: "The NIC becomes a bridge's port: the link stays, and no link is created.", do: func(t *testing.T, h *netlink.Handle, c *cluster) {
				t.Helper()
				addBridge("br9")(t, h)
				must(t, h.LinkSetMaster(find(t, h, "ens9"), find(t, h, "br9")))
				c.nets = append(c.nets, netOn(2, "more", "ens9", 6))
			}, want: "link far.5 vlan 5 on ens9 mtu 9000 up alias patchbay:vlan/ens9/5" + sealed, contains: "NIC is a port of another link, the bridge br9"},
		},
		"Bond": {
			{reason: "A bond can have links, and its port cannot.", do: func(t *testing.T, h *netlink.Handle, c *cluster) {
				t.Helper()
				bond := netlink.NewLinkBond(netlink.LinkAttrs{Name: "bond0", TxQLen: -1})
				bond.Mode = netlink.BOND_MODE_ACTIVE_BACKUP
				must(t, h.LinkAdd(bond))
				quiet(t, "bond0")
				must(t, h.LinkAdd(&netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Name: "port0", TxQLen: -1}}))
				must(t, h.LinkSetMaster(find(t, h, "port0"), find(t, h, "bond0")))
				c.nets = []*network.Network{netOn(1, "both", "bond0", 7), netOn(2, "port", "port0", 7)}
			}, want: "link both.7 vlan 7 on bond0 mtu 1500 up alias patchbay:vlan/bond0/7" + sealed, contains: "the bond bond0"},
		},
	}
	for name, steps := range cases {
		t.Run(name, func(t *testing.T) {
			host := newTrunk(t, 1, true)[0]
			within(t, host, func(h *netlink.Handle) {
				must(t, h.LinkAdd(&netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Name: "ens5", TxQLen: -1}}))
				quiet(t, "ens5")
				a, err := netlink.ParseAddr("198.51.100.1/24")
				must(t, err)
				must(t, h.AddrAdd(find(t, h, "ens5"), a))
			})
			c, k := &cluster{}, openKernel(t, host)
			requests := countRequests(k)
			observer := &statusObserver{}
			r := netwatcher.New(netwatcher.Config{Node: "self", Kernel: k.Links(), Firewall: openFirewall(t, host), SourceGuard: openGuard(t, host), KubeClient: c, Pods: c, Log: logr.Discard(), Observer: observer})
			for _, s := range steps {
				if s.do != nil {
					within(t, host, func(h *netlink.Handle) { s.do(t, h, c) })
				}
				for _, again := range []bool{false, true} {
					requests.take()
					if err := r.Reconcile(t.Context()); err != nil {
						t.Fatalf("%s %v", s.reason, err)
					}
					if all, changing := requests.take(); again && (changing > 0 || all > 7) {
						t.Errorf("%s The second time it sent %d requests, %d of them changes", s.reason, all, changing)
					}
					got := links(dump(t, host), "storage.", "other.", "vx_", "far.", "more.", "both.", "port.", "young.")
					if diff := cmp.Diff(s.want, got); diff != "" {
						t.Fatalf("%s (again: %v) -want +got\n%s", s.reason, again, diff)
					}
				}
				if text := observer.errors(); !strings.Contains(text, s.contains) || (text == "") != (s.contains == "") {
					t.Errorf("%s The status has the error %q, want %q", s.reason, text, s.contains)
				}
			}
		})
	}
}

func hasAddress(t *testing.T, h *netlink.Handle, l netlink.Link) bool {
	t.Helper()
	list, err := h.AddrList(l, netlink.FAMILY_V4)
	must(t, err)
	return len(list) > 0
}

// statusObserver keeps the status of the last reconciliation, written or not.
type statusObserver struct{ status *v1.NodeNetworkStatus }

func (*statusObserver) ObserveStep(netwatcher.Op, error) {}
func (*statusObserver) RecordEvent(netwatcher.LinkEvent) {}
func (o *statusObserver) ObserveReconcile(_ time.Duration, _ error, s *v1.NodeNetworkStatus) {
	o.status = s
}

// errors returns the errors of the status.
func (o *statusObserver) errors() string {
	var all []string
	for _, l := range o.status.Links {
		if l.Error != "" {
			all = append(all, l.Error)
		}
	}
	for _, r := range o.status.Refused {
		all = append(all, r.Error)
	}
	return strings.Join(all, "\n")
}
