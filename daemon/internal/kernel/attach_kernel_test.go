// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package kernel

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const owner = "ClusterNetwork/test"

func TestAttachGolden(t *testing.T) {
	cases := map[string]struct {
		reason string
		slave  Slave
		want   string
	}{
		"V4": {
			reason: "An IPv4 slave has IPv6 disabled and no broadcast address, and announces its address.",
			slave:  Slave{PodInterface: PodInterface{Name: "eth1", V4: prefix("10.0.0.5/24")}, Kind: MACVLAN},
			want: `
link eth1 macvlan bridge on another namespace mtu 1600 up alias patchbay:ClusterNetwork/test arp_notify=1 disable_ipv6=1
  address 10.0.0.5/24 broadcast <nil>
  route 10.0.0.0/24 table 254 proto kernel
`,
		},
		"V6": {
			reason: "An IPv6 slave detects duplicates and ignores router advertisements.",
			slave:  Slave{PodInterface: PodInterface{Name: "eth1", V6: prefix("fd00::5/64")}, Kind: MACVLAN},
			want: `
link eth1 macvlan bridge on another namespace mtu 1600 up alias patchbay:ClusterNetwork/test accept_ra=0 ndisc_notify=1
  address fd00::5/64 broadcast <nil>
  address link-local
  route fd00::/64 table 254 proto kernel
`,
		},
		"None": {
			reason: "A network without addresses is layer 2 only.",
			slave:  Slave{PodInterface: PodInterface{Name: "eth1"}, Kind: MACVLAN},
			want: `
link eth1 macvlan bridge on another namespace mtu 1600 up alias patchbay:ClusterNetwork/test disable_ipv6=1
`,
		},
		"DualStackRoutes": {
			reason: "Routes of both families include default routes.",
			slave: Slave{
				PodInterface: PodInterface{
					Name:   "eth0",
					V4:     prefix("10.0.0.5/24"),
					V6:     prefix("fd00::5/64"),
					Routes: routes("0.0.0.0/0", "10.0.0.1", "10.9.0.0/16", "10.0.0.1", "::/0", "fd00::1", "fd09::/48", "fd00::1"),
				},
				Kind: MACVLAN,
			},
			want: `
link eth0 macvlan bridge on another namespace mtu 1600 up alias patchbay:ClusterNetwork/test arp_notify=1 accept_ra=0 ndisc_notify=1
  address 10.0.0.5/24 broadcast <nil>
  address fd00::5/64 broadcast <nil>
  address link-local
  route 0.0.0.0/0 table 254 proto static via 10.0.0.1
  route 10.0.0.0/24 table 254 proto kernel
  route 10.9.0.0/16 table 254 proto static via 10.0.0.1
  route ::/0 table 254 proto static via fd00::1
  route fd00::/64 table 254 proto kernel
  route fd09::/48 table 254 proto static via fd00::1
`,
		},
		"RoutesWithoutAddress": {
			reason: "A family without an address has no routes.",
			slave: Slave{
				PodInterface: PodInterface{
					Name:         "eth1",
					V4:           prefix("10.0.0.5/24"),
					Routes:       routes("fd09::/48", "fd00::1"),
					Table:        100,
					PolicyRoutes: routes("fd09::/48", "fd00::1"),
				},
				Kind: MACVLAN,
			},
			want: `
link eth1 macvlan bridge on another namespace mtu 1600 up alias patchbay:ClusterNetwork/test arp_notify=1 disable_ipv6=1
  address 10.0.0.5/24 broadcast <nil>
  route 10.0.0.0/24 table 254 proto kernel
`,
		},
		"PolicyRoutes": {
			reason: "Policy routes apply to packets from the Pod's addresses, and tables may be above 255.",
			slave: Slave{
				PodInterface: PodInterface{
					Name:         "eth1",
					V4:           prefix("10.0.0.5/24"),
					V6:           prefix("fd00::5/64"),
					Table:        1000,
					PolicyRoutes: routes("10.9.0.0/16", "10.0.0.1", "fd09::/48", "fd00::1"),
				},
				Kind: MACVLAN,
			},
			want: `
link eth1 macvlan bridge on another namespace mtu 1600 up alias patchbay:ClusterNetwork/test arp_notify=1 accept_ra=0 ndisc_notify=1
  address 10.0.0.5/24 broadcast <nil>
  address fd00::5/64 broadcast <nil>
  address link-local
  route 10.0.0.0/24 table 254 proto kernel
  route 10.9.0.0/16 table 1000 proto static via 10.0.0.1
  route fd00::/64 table 254 proto kernel
  route fd09::/48 table 1000 proto static via fd00::1
rule from 10.0.0.5/32 table 1000
rule from fd00::5/128 table 1000
`,
		},
		"HostRoute": {
			reason: "A slave can have a /32 and a smaller MTU than the parent's.",
			slave:  Slave{PodInterface: PodInterface{Name: "eth1", V4: prefix("10.0.0.5/32")}, Kind: MACVLAN, MTU: 1400},
			want: `
link eth1 macvlan bridge on another namespace mtu 1400 up alias patchbay:ClusterNetwork/test arp_notify=1 disable_ipv6=1
  address 10.0.0.5/32 broadcast <nil>
`,
		},
		"NameOfTheParent": {
			reason: "Kernels before 6.15 reject a name that exists in the host.",
			slave:  Slave{PodInterface: PodInterface{Name: "ens4", V4: prefix("10.0.0.5/24")}, Kind: MACVLAN},
			want: `
link ens4 macvlan bridge on another namespace mtu 1600 up alias patchbay:ClusterNetwork/test arp_notify=1 disable_ipv6=1
  address 10.0.0.5/24 broadcast <nil>
  route 10.0.0.0/24 table 254 proto kernel
`,
		},
		"MACVLANPrivate": {
			reason: "The network sets the mode.",
			slave:  Slave{PodInterface: PodInterface{Name: "eth1"}, Kind: MACVLAN, Mode: "private"},
			want: `
link eth1 macvlan private on another namespace mtu 1600 up alias patchbay:ClusterNetwork/test disable_ipv6=1
`,
		},
		"IPVLAN": {
			reason: "IPVLAN supports both families with the parent's MAC.",
			slave:  Slave{PodInterface: PodInterface{Name: "eth1", V4: prefix("10.0.0.5/24"), V6: prefix("fd00::5/64")}, Kind: IPVLAN},
			want: `
link eth1 ipvlan l2 on another namespace mtu 1600 up alias patchbay:ClusterNetwork/test arp_notify=1 accept_ra=0 ndisc_notify=1
  address 10.0.0.5/24 broadcast <nil>
  address fd00::5/64 broadcast <nil>
  address link-local
  route 10.0.0.0/24 table 254 proto kernel
  route fd00::/64 table 254 proto kernel
`,
		},
		"IPVLANL3": {
			reason: "The network sets the mode, which has no ARP.",
			slave:  Slave{PodInterface: PodInterface{Name: "eth1", V4: prefix("10.0.0.5/24")}, Kind: IPVLAN, Mode: "l3"},
			want: `
link eth1 ipvlan l3 on another namespace mtu 1600 up alias patchbay:ClusterNetwork/test arp_notify=1 disable_ipv6=1
  address 10.0.0.5/24 broadcast <nil>
  route 10.0.0.0/24 table 254 proto kernel
`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			needs(t, tc.slave.Kind)
			host, _ := newHost(t, 1600)
			k := openKernel(t, host)
			pod := newNamespace(t)
			s := tc.slave
			s.Netns, s.Parent, s.Owner = pod, "ens4", owner
			before := dump(t, pod)
			out, err := k.Slaves().Attach(context.Background(), &s)
			if err != nil {
				t.Fatalf("%s %v", tc.reason, err)
			}
			if diff := cmp.Diff(tc.want, "\n"+dump(t, pod)); diff != "" {
				t.Errorf("%s -want +got\n%s", tc.reason, diff)
			}
			sameOutcome(t, pod, s.Name, out)
			if err := k.Slaves().Detach(context.Background(), &s); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(before, dump(t, pod)); diff != "" {
				t.Errorf("left behind: -before +after\n%s", diff)
			}
		})
	}
}

// If a runtime has disabled IPv6 for the sandbox, an interface with an IPv6 address enables it.
func TestIPv6WhereDisabled(t *testing.T) {
	host, _ := newHost(t, 1500)
	k := openKernel(t, host)
	pod := newNamespace(t)
	inside(t, pod, func() {
		must(t, sysctl{"ipv6/conf/all/disable_ipv6", "1"}.write())
		must(t, sysctl{"ipv6/conf/default/disable_ipv6", "1"}.write())
	})
	if _, err := k.Slaves().Attach(context.Background(), withDefaults(Slave{PodInterface: PodInterface{V6: prefix("fd00::5/64")}}, pod)); err != nil {
		t.Fatal(err)
	}
	if d := dump(t, pod); !strings.Contains(d, "address fd00::5/64") {
		t.Errorf("no address:\n%s", d)
	}
}
