// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/patchbay-cni/patchbay/daemon/internal/sysfs"
)

// A function is for Pods if its driver gives it one interface, or none for a program.
func TestCheckDriver(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason   string
		function sysfs.Function
		want     error
		message  string
	}{
		"Netdev":    {"The kernel drives the function.", sysfs.Function{Driver: "iavf", Netdev: "ens4v0"}, nil, ""},
		"VFIO":      {"A program drives the function.", sysfs.Function{Driver: "mlx5_vfio_pci"}, nil, ""},
		"NoDriver":  {"An administrator unbound the driver.", sysfs.Function{}, ErrInvalid, "no driver is bound to it"},
		"Elsewhere": {"Another Pod has the interface.", sysfs.Function{Driver: "iavf", NetdevElsewhere: true}, ErrFunctionBusy, "its driver is iavf"},
		"VDPA": {
			"Drivers for vDPA make no network interface.", sysfs.Function{Driver: "ifcvf"},
			ErrInvalid, "its driver ifcvf gives it no network interface, as those for vDPA: bind",
		},
		"TwoPorts": {
			"Patchbay would move one of the interfaces only.", sysfs.Function{Driver: "mlx4_core", Netdev: "a", OtherNetdevs: []string{"b"}},
			ErrInvalid, "it has the network interfaces a and b, and must have one: functions with several ports, as of driver mlx4_core, are not supported",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := checkDriver(&tc.function)
			if !errors.Is(err, tc.want) || err != nil && !strings.Contains(err.Error(), tc.message) {
				t.Errorf("%s got %v, want %q", tc.reason, err, tc.message)
			}
		})
	}
}

// An InfiniBand function has no MAC address that could be fixed.
func TestOtherLinkTypesAreRefused(t *testing.T) {
	t.Parallel()
	n := &functionNetdev{attrs: &netlink.LinkAttrs{Name: "ib0", EncapType: "infiniband"}}
	if err := n.checkUnused(); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "ib0 is an interface of type infiniband, and must be an Ethernet interface") {
		t.Errorf("got %v, want an error about the type", err)
	}
}

// Drivers answer that they reset a function: the request is repeated for a while, in which others end.
func TestWhileReset(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason  string
		answers []error // the last one stays
		want    error
		took    time.Duration
	}{
		"Ready":    {"The driver has nothing else to do.", []error{nil}, nil, 0},
		"Reset":    {"iavf answers EBUSY, and i40e EAGAIN.", []error{unix.EBUSY, unix.EAGAIN, nil}, nil, 2 * resetPollInterval},
		"Rejected": {"Another answer is final.", []error{unix.EBUSY, unix.EINVAL, nil}, unix.EINVAL, resetPollInterval},
		"Stuck":    {"The driver never ends.", []error{unix.EBUSY}, ErrFunctionReset, resetTimeout},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				start, calls := time.Now(), 0
				err := whileReset(t.Context(), "iavf", func() error {
					calls++
					return tc.answers[min(calls, len(tc.answers))-1]
				})
				if took := time.Since(start); !errors.Is(err, tc.want) || took != tc.took {
					t.Errorf("%s got %v after %s, want %v after %s", tc.reason, err, took, tc.want, tc.took)
				}
				if errors.Is(err, ErrFunctionReset) && !strings.Contains(err.Error(), "driver iavf is busy") {
					t.Errorf("%s %v must name the driver", tc.reason, err)
				}
			})
		})
	}
}

// igb answers EINVAL to a rate while the port has no link, as to a rate that it does not support.
func TestExplainAnswer(t *testing.T) {
	t.Parallel()
	rate, vlan := vfOption{name: "max_tx_rate", value: VFRate{Max: 100}}, vfOption{name: "vlan", value: VFVLAN{ID: 5}}
	cases := map[string]struct {
		reason string
		option vfOption
		flags  uint32
		answer error
		want   error
	}{
		"Done":    {"The driver has set it.", rate, 0, nil, nil},
		"NoLink":  {"The cable is out.", rate, unix.IFF_UP, unix.EINVAL, ErrNoLink},
		"Link":    {"The port has a link, so the driver does not support the rate.", rate, unix.IFF_UP | unix.IFF_LOWER_UP, unix.EINVAL, ErrRejected},
		"NoRates": {"Most cards of igb have no rates.", rate, unix.IFF_UP, unix.EOPNOTSUPP, ErrRejected},
		"VLAN":    {"A VLAN needs no link.", vlan, unix.IFF_UP, unix.EINVAL, ErrRejected},
		"Reset":   {"The driver has not decided.", vlan, unix.IFF_UP, ErrFunctionReset, ErrFunctionReset},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := &parentLink{name: "ens4", driver: "igb", flags: tc.flags}
			err := p.explain(tc.option, tc.answer)
			for _, target := range []error{ErrNoLink, ErrRejected, ErrFunctionReset} {
				if errors.Is(err, target) != errors.Is(tc.want, target) {
					t.Errorf("%s got %v, want %v", tc.reason, err, tc.want)
				}
			}
			if errors.Is(tc.want, ErrNoLink) && !strings.Contains(err.Error(), "check the cable of ens4 (driver igb)") {
				t.Errorf("%s %v must name the port and the driver", tc.reason, err)
			}
		})
	}
}

// A network whose functions have no link does not delay its Pods.
func TestCarrierTimeout(t *testing.T) {
	t.Parallel()
	for state, want := range map[string]time.Duration{LinkStateDisable: 0, LinkStateEnable: carrierTimeout, LinkStateAuto: carrierTimeout} {
		f := &Function{Settings: VFSettings{LinkState: &state}}
		if got := f.carrierTimeout(); got != want {
			t.Errorf("link state %s: got %s, want %s", state, got, want)
		}
	}
	if got := new(Function).carrierTimeout(); got != carrierTimeout {
		t.Errorf("without a link state: got %s, want %s", got, carrierTimeout)
	}
	// A Pod with an IPv6 address cannot start without a carrier, so that a longer wait delays no Pod that could.
	v6 := &Function{PodInterface: PodInterface{V6: netip.MustParsePrefix("fd00::1/64")}}
	if got := v6.carrierTimeout(); got != carrierTimeoutV6 {
		t.Errorf("with an IPv6 address: got %s, want %s", got, carrierTimeoutV6)
	}
	v6.Settings.LinkState = new(LinkStateDisable)
	if got := v6.carrierTimeout(); got != 0 {
		t.Errorf("with an IPv6 address and link state disable: got %s, want 0", got)
	}
}

// The kernel returns the interface and the RDMA device of a namespace that is gone one after the other.
func TestAwaitOnHost(t *testing.T) {
	t.Parallel()
	const address, device = "0000:03:10.0", "bus/pci/devices/0000:03:10.0/"
	cases := map[string]struct {
		reason string
		// late are paths that appear after the first read.
		early, late []string
		saved       FunctionState
		want        error
		took        time.Duration
	}{
		"Both":      {"The interface returns first.", []string{device + "net/a", device + "infiniband"}, []string{device + "infiniband/mlx5_2"}, FunctionState{Netdev: &NetdevState{}, RDMADevices: []string{"mlx5_2"}}, nil, returnPollInterval},
		"Netdev":    {"The function has no RDMA device.", nil, []string{device + "net/a"}, FunctionState{Netdev: &NetdevState{}}, nil, returnPollInterval},
		"Userspace": {"There is nothing that could return.", nil, nil, FunctionState{}, nil, 0},
		"RDMAGone":  {"The module of the RDMA device was unloaded: DEL must end.", []string{device + "net/a"}, nil, FunctionState{Netdev: &NetdevState{}, RDMADevices: []string{"mlx5_2"}}, nil, 0},
		"Rebound":   {"An administrator has bound a driver that makes no interface: DEL must end.", nil, nil, FunctionState{Netdev: &NetdevState{}}, nil, returnTimeout},
		"Hidden":    {"The Pod has moved the RDMA device into a namespace that a program keeps.", []string{device + "net/a", device + "infiniband"}, nil, FunctionState{Netdev: &NetdevState{}, RDMADevices: []string{"mlx5_2"}}, ErrFunctionBusy, returnTimeout},
		"Missing":   {"A program keeps the namespace.", []string{device + "net"}, nil, FunctionState{Netdev: &NetdevState{}}, ErrFunctionBusy, returnTimeout},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				root := t.TempDir()
				mkdirs := func(paths ...string) {
					for _, path := range paths {
						if err := os.MkdirAll(filepath.Join(root, path), 0o755); err != nil {
							t.Fatal(err)
						}
					}
				}
				const parent = "bus/pci/devices/0000:03:00.0/"
				mkdirs(append(tc.early, parent+"net/ens4", device)...)
				for link, target := range map[string]string{
					device + "physfn": "../0000:03:00.0", parent + "virtfn0": "../0000:03:10.0", device + "driver": "../mlx5_core",
				} {
					if err := os.Symlink(target, filepath.Join(root, link)); err != nil {
						t.Fatal(err)
					}
				}
				time.AfterFunc(returnPollInterval/2, func() { mkdirs(tc.late...) })
				start := time.Now()
				k := &Functions{sysfs: sysfs.FS{Root: root}}
				f, err := k.awaitOnHost(context.Background(), &Function{Address: address, Saved: tc.saved})
				if took := time.Since(start); !errors.Is(err, tc.want) || took != tc.took || (f == nil) != (err != nil) {
					t.Errorf("%s got %v after %s, want %v after %s", tc.reason, err, took, tc.want, tc.took)
				}
			})
		})
	}
}

// Links on a link are found by its index, which is one of the namespace that it is in.
func TestParseUpper(t *testing.T) {
	t.Parallel()
	const below, host = 7, 3
	on := nl.NewRtAttr(unix.IFLA_LINK, nl.Uint32Attr(below))
	elsewhere := nl.NewRtAttr(unix.IFLA_LINK_NETNSID, nl.Uint32Attr(host))
	kind := func(name string) *nl.RtAttr {
		info := nl.NewRtAttr(unix.IFLA_LINKINFO, nil)
		info.AddRtAttr(unix.IFLA_INFO_KIND, nl.NonZeroTerminated(name))
		return info
	}
	cases := map[string]struct {
		reason  string
		index   int
		attrs   []*nl.RtAttr
		want    upperLink
		foreign bool
	}{
		"VLAN":      {"The link is on a link of its namespace.", 9, []*nl.RtAttr{on, kind("vlan")}, upperLink{kind: "vlan", on: below, netns: -1}, false},
		"Elsewhere": {"The link below is on the host.", 9, []*nl.RtAttr{on, elsewhere, kind("vlan")}, upperLink{kind: "vlan", on: below, netns: host}, true},
		"SameIndex": {"Indexes of two namespaces can be equal.", below, []*nl.RtAttr{on, elsewhere, kind("macvlan")}, upperLink{kind: "macvlan", on: below, netns: host}, true},
		"VXLAN":     {"A VXLAN that was made on the host names itself.", below, []*nl.RtAttr{on, elsewhere, kind("vxlan")}, upperLink{kind: "vxlan", on: below, netns: host}, false},
		"GRE":       {"A tunnel has the number of a link, which may be another one's by now.", 9, []*nl.RtAttr{on, elsewhere, kind("gre")}, upperLink{kind: "gre", on: below, netns: host}, false},
		"XFRM":      {"An interface of IPsec has such a number, too.", 9, []*nl.RtAttr{on, elsewhere, kind("xfrm")}, upperLink{kind: "xfrm", on: below, netns: host}, false},
		"NIC":       {"Most links are on none.", 9, nil, upperLink{netns: -1}, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			head := nl.NewIfInfomsg(unix.AF_UNSPEC)
			head.Index = int32(tc.index)
			m := append(head.Serialize(), nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated("child")).Serialize()...)
			for _, a := range tc.attrs {
				m = append(m, a.Serialize()...)
			}
			tc.want.index, tc.want.name = tc.index, "child"
			got, err := parseUpper(m)
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(upperLink{})); err != nil || diff != "" {
				t.Errorf("%s got %v: -want +got\n%s", tc.reason, err, diff)
			}
			if got.isOnForeign(below) != tc.foreign {
				t.Errorf("%s got foreign %t", tc.reason, !tc.foreign)
			}
		})
	}
	if _, err := parseUpper([]byte{1}); err == nil {
		t.Error("a short message is no error")
	}
}
