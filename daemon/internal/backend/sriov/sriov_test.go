// SPDX-License-Identifier: Apache-2.0

package sriov_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
	"github.com/patchbay-cni/patchbay/daemon/internal/backend/sriov"
	"github.com/patchbay-cni/patchbay/daemon/internal/kernel"
	"github.com/patchbay-cni/patchbay/daemon/internal/sysfs"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// fakeKernel has one function, and keeps the requests.
type fakeKernel struct {
	state    kernel.FunctionState
	err      error
	pending  *kernel.VFRate
	attached []*kernel.Function
	detached []*kernel.Function
}

func (k *fakeKernel) Read(_ context.Context, address string) (*sysfs.Function, kernel.FunctionState, error) {
	return &sysfs.Function{Address: address, ParentAddress: "0000:03:00.0", Representor: "ens4r0"}, k.state, k.err
}

func (k *fakeKernel) Attach(_ context.Context, f *kernel.Function) (kernel.AttachResult, error) {
	k.attached = append(k.attached, f)
	return kernel.AttachResult{MAC: f.Settings.MAC.String(), MTU: 1500}, k.err
}

func (k *fakeKernel) Detach(_ context.Context, f *kernel.Function) (*kernel.VFRate, error) {
	k.detached = append(k.detached, f)
	return k.pending, k.err
}

// own is the MAC of the function's interface.
const own = "02:00:00:00:00:01"

// functionState is the state of a function with an interface, as a driver that reports all settings shows it.
func functionState() kernel.FunctionState {
	return kernel.FunctionState{
		VF: kernel.VFSettings{
			MAC: make(net.HardwareAddr, 6), VLAN: &kernel.VFVLAN{}, SpoofCheck: new(false), Trust: new(true),
			LinkState: new(kernel.LinkStateAuto), Rate: &kernel.VFRate{Max: 50},
		},
		Netdev: &kernel.NetdevState{Name: "ens4v0", MAC: own, MTU: 1500}, RDMADevices: []string{"mlx5_2"},
	}
}

func TestSettings(t *testing.T) {
	t.Parallel()
	mac, err := net.ParseMAC(own)
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		reason  string
		network network.Network
		state   func(*kernel.FunctionState)
		want    kernel.VFSettings
	}{
		"Defaults": {
			reason: "A Pod must not pose as another.",
			want:   kernel.VFSettings{MAC: mac, SpoofCheck: new(true), Trust: new(false)},
		},
		"NotReported": {
			reason: "The driver has neither spoof check nor trust.", state: func(s *kernel.FunctionState) { s.VF.SpoofCheck, s.VF.Trust = nil, nil },
			want: kernel.VFSettings{MAC: mac},
		},
		"NotReportedButSet": {
			reason: "The network requires both, so the driver decides.", state: func(s *kernel.FunctionState) { s.VF.SpoofCheck, s.VF.Trust = nil, nil },
			network: network.Network{SRIOV: network.SRIOV{SpoofCheck: new(true), Trust: new(true)}},
			want:    kernel.VFSettings{MAC: mac, SpoofCheck: new(true), Trust: new(true)},
		},
		"VLAN": {
			reason:  "The tag has protocol and priority.",
			network: network.Network{VLAN: 500, SRIOV: network.SRIOV{VLANQoS: 3, VLANProtocol: network.EtherType8021AD}},
			want:    kernel.VFSettings{MAC: mac, VLAN: &kernel.VFVLAN{ID: 500, QoS: 3, Protocol: kernel.VLAN8021AD}, SpoofCheck: new(true), Trust: new(false)},
		},
		"MinRate": {
			reason: "The kernel sets both rates at once: an administrator's limit stays.", network: network.Network{SRIOV: network.SRIOV{MinTxRate: 10}},
			want: kernel.VFSettings{MAC: mac, SpoofCheck: new(true), Trust: new(false), Rate: &kernel.VFRate{Min: 10, Max: 50}},
		},
		"LinkState": {
			reason: "The functions of one card reach each other without a cable.", network: network.Network{SRIOV: network.SRIOV{LinkState: "enable"}},
			want: kernel.VFSettings{MAC: mac, SpoofCheck: new(true), Trust: new(false), LinkState: new("enable")},
		},
		"Userspace": {
			reason: "An administrator has fixed the MAC of a function without an interface.",
			state:  func(s *kernel.FunctionState) { s.Netdev, s.VF.MAC = nil, mac },
			want:   kernel.VFSettings{MAC: mac, SpoofCheck: new(true), Trust: new(false)},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := &fakeKernel{state: functionState()}
			if tc.state != nil {
				tc.state(&k.state)
			}
			b, rec, ifc := newBackendOf(t, k, tc.network)
			if err := errors.Join(b.Prepare(t.Context(), nil, ifc), b.Attach(t.Context(), rec, ifc), b.Detach(t.Context(), rec, ifc)); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, k.attached[0].Settings); diff != "" {
				t.Errorf("%s -want +got\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(k.state, k.attached[0].Saved); diff != "" {
				t.Errorf("%s The saved state differs: -want +got\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(k.attached, k.detached, cmp.Comparer(func(a, b *kernel.Function) bool { return a.Address == b.Address && cmp.Equal(a.Settings, b.Settings) })); diff != "" {
				t.Errorf("%s DEL differs from ADD: %s", tc.reason, diff)
			}
			if ifc.MAC != tc.want.MAC.String() || ifc.MTU != 1500 || ifc.Representor != "ens4r0" {
				t.Errorf("%s The record has MAC %s, MTU %d, representor %q", tc.reason, ifc.MAC, ifc.MTU, ifc.Representor)
			}
		})
	}
}

func newBackendOf(t *testing.T, k *fakeKernel, n network.Network) (*sriov.Backend, *attach.Record, *attach.Interface) {
	t.Helper()
	n.Ref = network.Ref{Kind: "ClusterNetwork", Name: "fast"}
	rec := &attach.Record{ContainerID: "a", Netns: "/run/netns/a", BootID: "boot-1"}
	return sriov.New(sriov.Options{
			Kernel: k, BootID: "boot-1", DeviceInfoDir: filepath.Join(t.TempDir(), "devinfo"), StateDir: filepath.Join(t.TempDir(), "functions"),
		}), rec,
		&attach.Interface{Name: "net1", Network: n, DeviceID: "0000:03:10.0"}
}

// A function of a userspace driver has a MAC for its program, even if the physical function has none.
func TestUserspaceMAC(t *testing.T) {
	t.Parallel()
	k := &fakeKernel{state: functionState()}
	k.state.Netdev = nil
	b, rec, ifc := newBackendOf(t, k, network.Network{})
	if err := errors.Join(b.Prepare(t.Context(), nil, ifc), b.Attach(t.Context(), rec, ifc)); err != nil {
		t.Fatal(err)
	}
	mac, err := net.ParseMAC(ifc.MAC)
	if err != nil || mac[0]&3 != 2 || !cmp.Equal(mac, k.attached[0].Settings.MAC) {
		t.Errorf("MAC %s must be local, and that of the settings %s", ifc.MAC, k.attached[0].Settings.MAC)
	}
	info, err := os.ReadFile(filepath.Join(b.DeviceInfoDir, "a-net1-device.json"))
	if err != nil {
		t.Fatal(err)
	}
	want := `{"type":"pci","version":"1.1.0","pci":{"pci-address":"0000:03:10.0","pf-pci-address":"0000:03:00.0","rdma-device":"mlx5_2"}}`
	if diff := cmp.Diff(want, string(info)); diff != "" {
		t.Errorf("device information: -want +got\n%s", diff)
	}
	rec.BootID = "boot-0"
	if err := b.Detach(t.Context(), rec, ifc); err != nil || len(k.detached) > 0 {
		t.Errorf("a boot resets functions: got %v, and DEL changed %v", err, k.detached)
	}
	if left, err := os.ReadDir(b.DeviceInfoDir); err != nil || len(left) > 0 {
		t.Errorf("files after DEL: %v, %v", left, err)
	}
}

func TestErrors(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		err    error
		again  bool
	}{
		"Busy":     {"The namespace of the last Pod ends in a moment.", kernel.ErrFunctionBusy, true},
		"Reset":    {"The driver reports the function again when it has reset it.", kernel.ErrFunctionReset, true},
		"NoLink":   {"The network has a rate, and igb sets rates with a link only.", kernel.ErrNoLink, true},
		"NoParent": {"The driver of the physical function restarts.", sysfs.ErrNoParent, true},
		"Rejected": {"The driver will not change its mind.", kernel.ErrRejected, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := &fakeKernel{state: functionState()}
			b, rec, ifc := newBackendOf(t, k, network.Network{})
			if err := b.Prepare(t.Context(), nil, ifc); err != nil {
				t.Fatal(err)
			}
			k.err = tc.err
			for step, err := range map[string]error{
				"Prepare": b.Prepare(t.Context(), nil, ifc), "Attach": b.Attach(t.Context(), rec, ifc), "Detach": b.Detach(t.Context(), rec, ifc),
			} {
				if !errors.Is(err, tc.err) || errors.Is(err, attach.ErrTryAgain) != tc.again {
					t.Errorf("%s %s: got %v, want try again: %t", tc.reason, step, err, tc.again)
				}
				if step != "Prepare" && !strings.Contains(err.Error(), "ClusterNetwork/fast") {
					t.Errorf("%s %s: %v must name the network", tc.reason, step, err)
				}
			}
		})
	}
}

// A function that no program on the node can find is given back.
func TestDeviceInfoFails(t *testing.T) {
	t.Parallel()
	k := &fakeKernel{state: functionState()}
	b, rec, ifc := newBackendOf(t, k, network.Network{})
	if err := os.WriteFile(b.DeviceInfoDir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := b.Prepare(t.Context(), nil, ifc); err != nil {
		t.Fatal(err)
	}
	if err := b.Attach(t.Context(), rec, ifc); err == nil || len(k.detached) != 1 {
		t.Errorf("got %v, and %d functions given back", err, len(k.detached))
	}
}

// A rate that DEL could not restore is restored for the next Pod, also after a restart of the daemon.
func TestPendingRate(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason  string
		network network.Network
		boot    string
		want    *kernel.VFRate
		saved   int
	}{
		"NoRate":  {"The next network has no rate of its own: the former Pod's must not stay.", network.Network{}, "boot-1", &kernel.VFRate{Max: 50}, 50},
		"MaxRate": {"The next network has its own rate, and DEL returns to the first one.", network.Network{SRIOV: network.SRIOV{MaxTxRate: 200}}, "boot-1", &kernel.VFRate{Max: 200}, 50},
		"MinRate": {"The kernel sets both rates at once.", network.Network{SRIOV: network.SRIOV{MinTxRate: 10}}, "boot-1", &kernel.VFRate{Min: 10, Max: 50}, 50},
		"Reboot":  {"The boot has reset the function.", network.Network{}, "boot-2", nil, 100},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := &fakeKernel{state: functionState()}
			b, rec, ifc := newBackendOf(t, k, network.Network{SRIOV: network.SRIOV{MaxTxRate: 100}})
			k.pending = &kernel.VFRate{Max: 50}
			if err := errors.Join(b.Prepare(t.Context(), nil, ifc), b.Attach(t.Context(), rec, ifc), b.Detach(t.Context(), rec, ifc)); err != nil {
				t.Fatal(err)
			}
			k.pending, k.state.VF.Rate = nil, &kernel.VFRate{Max: 100}
			b = sriov.New(sriov.Options{Kernel: k, BootID: tc.boot, DeviceInfoDir: b.DeviceInfoDir, StateDir: b.StateDir})
			rec = &attach.Record{ContainerID: "b", Netns: "/run/netns/b", BootID: tc.boot}
			ifc = &attach.Interface{Name: "net1", Network: tc.network, DeviceID: ifc.DeviceID}
			if err := errors.Join(b.Prepare(t.Context(), nil, ifc), b.Attach(t.Context(), rec, ifc), b.Detach(t.Context(), rec, ifc)); err != nil {
				t.Fatal(err)
			}
			got := k.attached[1]
			if diff := cmp.Diff(tc.want, got.Settings.Rate); diff != "" || got.Saved.VF.Rate.Max != tc.saved {
				t.Errorf("%s The saved limit is %d, want %d; the rate: -want +got\n%s", tc.reason, got.Saved.VF.Rate.Max, tc.saved, diff)
			}
			if left, err := os.ReadDir(b.StateDir); err != nil || len(left) > 0 {
				t.Errorf("%s After DEL the folder has %v, %v", tc.reason, left, err)
			}
		})
	}
}

// An interface without a state was never attached: the state is in the journal before.
func TestDetachWithoutState(t *testing.T) {
	t.Parallel()
	k := &fakeKernel{}
	b, rec, ifc := newBackendOf(t, k, network.Network{})
	if err := b.Detach(t.Context(), rec, ifc); err != nil || len(k.detached) > 0 {
		t.Errorf("got %v, and DEL changed %v", err, k.detached)
	}
}
