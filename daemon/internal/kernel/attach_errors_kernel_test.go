// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package kernel

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// A failed attachment names its cause and leaves the Pod's namespace as it was.
func TestAttachErrors(t *testing.T) {
	cases := map[string]struct {
		reason   string
		slave    Slave
		pod      func(t *testing.T, h *netlink.Handle)
		host     func(t *testing.T, h *netlink.Handle)
		is       error
		contains string
	}{
		"ParentMissing": {
			reason: "The NIC was removed, or the network has a typo.",
			slave:  Slave{Parent: "ens9"},
			is:     ErrParentMissing, contains: "ens9",
		},
		"NameTaken": {
			reason: "Another plugin's link in the Pod must not be deleted.",
			slave:  Slave{PodInterface: PodInterface{Name: "net0"}},
			pod:    addBridge("net0"),
			is:     ErrNameTaken, contains: "net0 is a bridge link",
		},
		"ParentIsBridgePort": {
			reason: "The bridge gets the NIC's frames.",
			host: func(t *testing.T, h *netlink.Handle) {
				t.Helper()
				addBridge("br0")(t, h)
				must(t, h.LinkSetMaster(find(t, h, "ens4"), find(t, h, "br0")))
			},
			is: ErrParentBusy, contains: "bridge",
		},
		"PassthruBesideOthers": {
			reason: "Mode passthru allows no other slave on the parent.",
			slave:  Slave{Mode: "passthru"},
			host: func(t *testing.T, h *netlink.Handle) {
				t.Helper()
				attrs := netlink.LinkAttrs{Name: "other", ParentIndex: find(t, h, "ens4").Attrs().Index, TxQLen: -1}
				must(t, h.LinkAdd(&netlink.Macvlan{LinkAttrs: attrs, Mode: netlink.MACVLAN_MODE_BRIDGE}))
			},
			is: ErrParentBusy,
		},
		"LargeMTU": {
			reason: "The parent would drop large frames.",
			slave:  Slave{MTU: 9000},
			is:     ErrInvalid, contains: "mtu 9000 must be at most the 1500 of ens4",
		},
		"RouteTaken": {
			reason: "Another interface's route must not be replaced.",
			slave:  Slave{PodInterface: PodInterface{V4: prefix("10.0.0.5/24"), Routes: routes("10.9.0.0/16", "10.0.0.1")}},
			pod: func(t *testing.T, h *netlink.Handle) {
				t.Helper()
				lo := find(t, h, "lo").Attrs().Index
				dst := netlink.NewIPNet(prefix("10.9.0.0/16").Addr().AsSlice())
				dst.Mask = []byte{255, 255, 0, 0}
				must(t, h.RouteAdd(&netlink.Route{LinkIndex: lo, Dst: dst, Scope: netlink.SCOPE_LINK}))
			},
			is: unix.EEXIST, contains: "10.9.0.0/16 via 10.0.0.1",
		},
		"GatewayUnreachable": {
			reason: "The second route fails after link and address were added.",
			slave: Slave{
				PodInterface: PodInterface{
					V4:     prefix("10.0.0.5/24"),
					V6:     prefix("fd00::5/64"),
					Routes: routes("10.8.0.0/16", "10.0.0.1", "10.9.0.0/16", "10.77.0.1"),
				},
			},
			is: unix.ENETUNREACH, contains: "10.9.0.0/16 via 10.77.0.1",
		},
		"PolicyRouteUnreachable": {
			reason: "The second route of the network's table fails.",
			slave:  Slave{PodInterface: PodInterface{V4: prefix("10.0.0.5/24"), Table: 100, PolicyRoutes: routes("10.8.0.0/16", "10.0.0.1", "10.9.0.0/16", "10.77.0.1")}},
			is:     unix.ENETUNREACH,
		},
		"NoTable": {
			reason: "Policy routes must not be added to the main table.",
			slave:  Slave{PodInterface: PodInterface{V4: prefix("10.0.0.5/24"), PolicyRoutes: routes("10.8.0.0/16", "10.0.0.1")}},
			is:     ErrInvalid, contains: "rt_tables",
		},
		"NameTooLong":  {reason: "A name must have at most 15 bytes.", slave: Slave{PodInterface: PodInterface{Name: strings.Repeat("x", 16)}}, is: ErrInvalid, contains: "15 bytes"},
		"NameIsPath":   {reason: "The name becomes part of the paths of sysctls.", slave: Slave{PodInterface: PodInterface{Name: "../x"}}, is: ErrInvalid},
		"NameTemplate": {reason: "The kernel would replace %d.", slave: Slave{PodInterface: PodInterface{Name: "eth%d"}}, is: ErrInvalid},
		"Mode":         {reason: "The mode is one of the other kind.", slave: Slave{Mode: "l2"}, is: ErrInvalid, contains: "bridge, private"},
		"Kind":         {reason: "The kind is not supported.", slave: Slave{Kind: "veth"}, is: ErrInvalid},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			host, _ := newHost(t, 1500)
			pod := newNamespace(t)
			for path, prepare := range map[string]func(*testing.T, *netlink.Handle){host: tc.host, pod: tc.pod} {
				if prepare != nil {
					within(t, path, func(h *netlink.Handle) { prepare(t, h) })
				}
			}
			k := openKernel(t, host)
			s := withDefaults(tc.slave, pod)
			before := dump(t, pod)
			_, err := k.Slaves().Attach(context.Background(), s)
			if !errors.Is(err, tc.is) || !strings.Contains(err.Error(), tc.contains) {
				t.Errorf("%s got %v, want %v that contains %q", tc.reason, err, tc.is, tc.contains)
			}
			if diff := cmp.Diff(before, dump(t, pod)); diff != "" {
				t.Errorf("left behind: -before +after\n%s", diff)
			}
		})
	}
}

func withDefaults(s Slave, pod string) *Slave {
	s.Netns, s.Owner = pod, owner
	if s.Name == "" {
		s.Name = "eth1"
	}
	if s.Kind == "" {
		s.Kind = MACVLAN
	}
	if s.Parent == "" {
		s.Parent = "ens4"
	}
	return &s
}

func addBridge(name string) func(*testing.T, *netlink.Handle) {
	return func(t *testing.T, h *netlink.Handle) {
		t.Helper()
		must(t, h.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: name, TxQLen: -1}}))
	}
}

func TestNamespaceGone(t *testing.T) {
	host, _ := newHost(t, 1500)
	k := openKernel(t, host)
	stale := newNamespace(t)
	dropNamespace(t, stale) // its file stays
	for name, path := range map[string]string{
		"Missing": filepath.Join(t.TempDir(), "none"), "Stale": stale, "Directory": t.TempDir(),
	} {
		t.Run(name, func(t *testing.T) {
			s := withDefaults(Slave{}, path)
			if _, err := k.Slaves().Attach(context.Background(), s); !errors.Is(err, ErrNamespaceGone) {
				t.Errorf("Attach: got %v, want %v", err, ErrNamespaceGone)
			}
			if err := k.Slaves().Detach(context.Background(), s); err != nil {
				t.Errorf("Detach: the kernel deleted the link with the namespace, got %v", err)
			}
		})
	}
	if err := k.Slaves().Detach(context.Background(), withDefaults(Slave{}, "")); err != nil {
		t.Errorf("Detach without a namespace (CNI_NETNS may be empty): %v", err)
	}
}

func TestOtherKindOnParent(t *testing.T) {
	needs(t, IPVLAN)
	host, _ := newHost(t, 1500)
	k := openKernel(t, host)
	pod := newNamespace(t)
	if _, err := k.Slaves().Attach(context.Background(), withDefaults(Slave{PodInterface: PodInterface{Name: "eth1"}, Kind: IPVLAN}, pod)); err != nil {
		t.Fatal(err)
	}
	if _, err := k.Slaves().Attach(context.Background(), withDefaults(Slave{PodInterface: PodInterface{Name: "eth2"}, Kind: MACVLAN}, pod)); !errors.Is(err, ErrParentBusy) {
		t.Errorf("MACVLAN beside IPVLAN: got %v, want %v", err, ErrParentBusy)
	}
}

func TestAddressTakenOnSameParent(t *testing.T) {
	needs(t, IPVLAN)
	host, _ := newHost(t, 1500)
	k := openKernel(t, host)
	for family, s := range map[string]Slave{
		"V4": {Kind: IPVLAN, PodInterface: PodInterface{V4: prefix("10.0.0.5/24")}}, "V6": {Kind: IPVLAN, PodInterface: PodInterface{V6: prefix("fd00::5/64")}},
	} {
		t.Run(family, func(t *testing.T) {
			one, two := newNamespace(t), newNamespace(t)
			if _, err := k.Slaves().Attach(context.Background(), withDefaults(s, one)); err != nil {
				t.Fatal(err)
			}
			before := dump(t, two)
			if _, err := k.Slaves().Attach(context.Background(), withDefaults(s, two)); !errors.Is(err, ErrAddressTaken) {
				t.Errorf("the second slave with the address: got %v, want %v", err, ErrAddressTaken)
			}
			if diff := cmp.Diff(before, dump(t, two)); diff != "" {
				t.Errorf("left behind: -before +after\n%s", diff)
			}
		})
	}
}

// Duplicate address detection finds another host that has the IPv6 address.
func TestDuplicateIPv6(t *testing.T) {
	host, wire := newHost(t, 1500)
	within(t, wire, func(h *netlink.Handle) {
		must(t, sysctl{"ipv6/conf/port1/disable_ipv6", "0"}.write())
		must(t, sysctl{"ipv6/conf/port1/accept_dad", "0"}.write())
		a, err := netlink.ParseAddr("fd00::5/64")
		must(t, err)
		a.Flags = unix.IFA_F_NODAD
		must(t, h.AddrAdd(find(t, h, "port1"), a))
	})
	k := openKernel(t, host)
	pod := newNamespace(t)
	before := dump(t, pod)
	_, err := k.Slaves().Attach(context.Background(), withDefaults(Slave{PodInterface: PodInterface{V6: prefix("fd00::5/64")}}, pod))
	if !errors.Is(err, ErrAddressTaken) {
		t.Errorf("got %v, want %v", err, ErrAddressTaken)
	}
	if diff := cmp.Diff(before, dump(t, pod)); diff != "" {
		t.Errorf("left behind: -before +after\n%s", diff)
	}
}

// A cancelled Attach does not wait for duplicate address detection.
func TestAttachCancelled(t *testing.T) {
	host, _ := newHost(t, 1500)
	k := openKernel(t, host)
	pod := newNamespace(t)
	before := dump(t, pod)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if _, err := k.Slaves().Attach(ctx, withDefaults(Slave{PodInterface: PodInterface{V6: prefix("fd00::5/64")}}, pod)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want %v", err, context.DeadlineExceeded)
	}
	if diff := cmp.Diff(before, dump(t, pod)); diff != "" {
		t.Errorf("left behind: -before +after\n%s", diff)
	}
}
