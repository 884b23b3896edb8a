// SPDX-License-Identifier: Apache-2.0

// Package sriov is the backend of the NetworkType sriov: it gives virtual functions of network cards
// to Pods as interfaces. A function is known by its PCI address, which kubelet's device plugins allocate.
// With a userspace driver such as vfio-pci a function has no network interface: it gets MAC and VLAN from
// its physical function, and a program in the Pod drives it.
package sriov

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"

	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
	"github.com/patchbay-cni/patchbay/daemon/internal/kernel"
	"github.com/patchbay-cni/patchbay/daemon/internal/sysfs"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// Kernel reads and changes virtual functions. Detach is idempotent.
type Kernel interface {
	// Read returns a function that no Pod has, and its state.
	Read(ctx context.Context, address string) (*sysfs.Function, kernel.FunctionState, error)
	Attach(ctx context.Context, f *kernel.Function) (kernel.AttachResult, error)
	// Detach returns a rate that could not be restored yet.
	Detach(ctx context.Context, f *kernel.Function) (pending *kernel.VFRate, err error)
}

// Options configure a Backend.
type Options struct {
	// Kernel has the node's functions.
	Kernel Kernel
	// BootID is the kernel's boot ID. A boot resets all functions.
	BootID string
	// DeviceInfoDir is the folder of device-information files; see writeDeviceInfo.
	DeviceInfoDir string
	// StateDir is the folder of pending rates; see pendingRates.
	StateDir string
}

// Backend gives virtual functions to Pods. It implements attach.Backend. The journal has all that Detach
// needs; pendingRates has the rates that Detach could not restore.
type Backend struct{ Options }

var (
	_ attach.Backend  = (*Backend)(nil)
	_ attach.Preparer = (*Backend)(nil)
)

// New returns the backend.
func New(o Options) *Backend { return &Backend{o} }

// deviceState is what the journal has of a function. It is written before the function changes, so that
// ADD and DEL use the same settings.
type deviceState struct {
	// Saved is the state before Attach.
	Saved kernel.FunctionState `json:"saved"`
	// Settings are those for the Pod.
	Settings kernel.VFSettings `json:"settings"`
	// ParentAddress is the PCI address of the physical function.
	ParentAddress string `json:"parentAddress"`
}

// Prepare reads the state of the interface's function, which the sandbox has claimed, and writes its
// representor into ifc.
func (b *Backend) Prepare(ctx context.Context, _ *attach.Request, ifc *attach.Interface) error {
	f, saved, err := b.Kernel.Read(ctx, ifc.DeviceID)
	if err != nil {
		return retryable(err)
	}
	pending, err := b.pendingRates().read(ifc.DeviceID)
	if err != nil {
		return err
	}
	if pending != nil {
		saved.VF.Rate = pending
	}
	state := deviceState{Saved: saved, Settings: settings(&ifc.Network, &saved), ParentAddress: f.ParentAddress}
	if state.Settings.Rate == nil {
		state.Settings.Rate = pending
	}
	if ifc.DeviceState, err = json.Marshal(state); err != nil {
		return fmt.Errorf("encode state of device %s: %w", ifc.DeviceID, err)
	}
	ifc.Representor = f.Representor
	return nil
}

// settings returns the settings of a function for a network. Spoof check is on and trust is off unless the
// network says otherwise: a Pod can have the right to change its interface. They are not set by default
// if the driver does not report them. The MAC is fixed at the physical function for the same reason.
func settings(n *network.Network, saved *kernel.FunctionState) kernel.VFSettings {
	o := &n.SRIOV
	s := kernel.VFSettings{
		MAC: functionMAC(saved), SpoofCheck: o.SpoofCheck, Trust: o.Trust,
	}
	if s.SpoofCheck == nil && saved.VF.SpoofCheck != nil {
		s.SpoofCheck = new(true)
	}
	if s.Trust == nil && saved.VF.Trust != nil {
		s.Trust = new(false)
	}
	if n.VLAN != 0 {
		s.VLAN = &kernel.VFVLAN{ID: n.VLAN, QoS: o.VLANQoS, Protocol: int(o.VLANProtocol)}
	}
	if o.LinkState != "" {
		s.LinkState = &o.LinkState
	}
	if o.MinTxRate != 0 || o.MaxTxRate != 0 {
		s.Rate = &kernel.VFRate{}
		if saved.VF.Rate != nil {
			*s.Rate = *saved.VF.Rate
		}
		if o.MinTxRate != 0 {
			s.Rate.Min = o.MinTxRate
		}
		if o.MaxTxRate != 0 {
			s.Rate.Max = o.MaxTxRate
		}
	}
	return s
}

// functionMAC returns the MAC of the function's interface. Without an interface, it is that of the
// physical function, which may have none.
func functionMAC(saved *kernel.FunctionState) net.HardwareAddr {
	if saved.Netdev != nil {
		mac, _ := net.ParseMAC(saved.Netdev.MAC) // the kernel's format
		return mac
	}
	if slices.ContainsFunc(saved.VF.MAC, func(b byte) bool { return b != 0 }) {
		return saved.VF.MAC
	}
	return kernel.RandomMAC()
}

// Attach configures the function and moves its interface into the Pod. It writes MAC and MTU into ifc.
func (b *Backend) Attach(ctx context.Context, rec *attach.Record, ifc *attach.Interface) error {
	f, state, err := function(rec, ifc)
	if err != nil {
		return err
	}
	out, err := b.Kernel.Attach(ctx, f)
	if err != nil {
		return fmt.Errorf("network %s: %w", ifc.Network.Ref, retryable(err))
	}
	if err := b.writeDeviceInfo(rec, ifc, state); err != nil {
		return errors.Join(fmt.Errorf("network %s: %w", ifc.Network.Ref, err), b.detach(context.WithoutCancel(ctx), f))
	}
	ifc.MAC, ifc.MTU = out.MAC, out.MTU
	return nil
}

// Detach takes the function back, as it was before. After a reboot there is nothing to take back, nor for an
// interface that has no state: the state is in the journal before the function changes.
func (b *Backend) Detach(ctx context.Context, rec *attach.Record, ifc *attach.Interface) error {
	if rec.BootID != b.BootID || len(ifc.DeviceState) == 0 {
		return b.removeDeviceInfo(rec, ifc)
	}
	f, _, err := function(rec, ifc)
	if err != nil {
		return err
	}
	if err := b.detach(ctx, f); err != nil {
		return fmt.Errorf("network %s: %w", ifc.Network.Ref, retryable(err))
	}
	return b.removeDeviceInfo(rec, ifc)
}

// detach takes the function back. It stores a rate that is pending, for the next Pod.
func (b *Backend) detach(ctx context.Context, f *kernel.Function) error {
	pending, err := b.Kernel.Detach(ctx, f)
	if err != nil {
		return err
	}
	return b.pendingRates().write(f.Address, pending)
}

func (b *Backend) pendingRates() pendingRates { return pendingRates{dir: b.StateDir, bootID: b.BootID} }

// retryable adds attach.ErrTryAgain if another namespace has the function's interface or RDMA device, which the
// kernel moves to the host when that namespace ends, while a driver resets the function or the physical function
// restarts, and if a rate needs a link.
func retryable(err error) error {
	for _, target := range []error{kernel.ErrFunctionBusy, kernel.ErrFunctionReset, kernel.ErrNoLink, sysfs.ErrNoParent} {
		if errors.Is(err, target) {
			return fmt.Errorf("%w: %w", attach.ErrTryAgain, err)
		}
	}
	return err
}

// function returns the function of a journaled interface.
func function(rec *attach.Record, ifc *attach.Interface) (*kernel.Function, *deviceState, error) {
	state := &deviceState{}
	if err := json.Unmarshal(ifc.DeviceState, state); err != nil {
		return nil, nil, fmt.Errorf("decode state of device %s: %w", ifc.DeviceID, err)
	}
	return &kernel.Function{
		PodInterface: kernel.PodInterface{
			Netns: rec.Netns, Name: ifc.Name, Owner: ifc.Network.Ref.String(), V4: ifc.V4, V6: ifc.V6,
			Routes: slices.Concat(routes(ifc.Network.V4), routes(ifc.Network.V6)),
			Table:  ifc.Network.Table, PolicyRoutes: ifc.Proutes,
		},
		Address: ifc.DeviceID, Saved: state.Saved, Settings: state.Settings,
		MTU: ifc.Network.MTU, Promiscuous: ifc.Network.SRIOV.Promiscuous,
	}, state, nil
}

func routes(s *network.Subnet) []network.Route {
	if s == nil {
		return nil
	}
	return s.Routes
}
