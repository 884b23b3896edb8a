// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/patchbay-cni/patchbay/daemon/internal/sysfs"
)

// Function is an interface of a Pod that is a virtual function of a network card (SR-IOV).
type Function struct {
	PodInterface

	// Address is the function's PCI address, by which alone it is found: its interface may have any
	// name, on the host and in the Pod.
	Address string
	// Saved is the state before Attach, to which Detach returns.
	Saved FunctionState
	// Settings are those for the Pod.
	Settings VFSettings
	// MTU in bytes; 0 is the present one. Without an interface it has no effect.
	MTU int
	// Promiscuous receives all frames of the function's VLAN.
	Promiscuous bool
}

// FunctionState is the state of a virtual function that no Pod has.
type FunctionState struct {
	// VF has the settings that the physical function reports.
	VF VFSettings `json:"vf"`
	// OwnMAC means that the driver of the interface chose its MAC: the physical function has fixed none.
	// VF.MAC is then zero, or what the driver has told the physical function.
	OwnMAC bool `json:"ownMAC,omitempty"`
	// Netdev is the function's network interface; nil for a userspace driver.
	Netdev *NetdevState `json:"netdev,omitempty"`
	// RDMADevices are the names of the function's RDMA devices.
	RDMADevices []string `json:"rdmaDevices,omitempty"`
}

// fixed returns the settings without a MAC that the physical function has not fixed.
func (s *FunctionState) fixed() *VFSettings {
	vf := s.VF
	if s.OwnMAC {
		vf.MAC = make(net.HardwareAddr, len(macAddress{}))
	}
	return &vf
}

// NetdevState is the state of a network interface on the host.
type NetdevState struct {
	Name string `json:"name"`
	MAC  string `json:"mac"`
	MTU  int    `json:"mtu"`
	Up   bool   `json:"up,omitempty"`
	// Flags are those of netdevFlags.
	Flags uint32 `json:"flags,omitempty"`
	// TxQueueLen is the length of the transmit queue in packets.
	TxQueueLen int      `json:"txQueueLen,omitempty"`
	Group      uint32   `json:"group,omitempty"`
	Alias      string   `json:"alias,omitempty"`
	AltNames   []string `json:"altNames,omitempty"`
}

// netdevFlags are the flags, besides IFF_UP, that a Pod can change.
const netdevFlags = unix.IFF_PROMISC | unix.IFF_ALLMULTI | unix.IFF_MULTICAST | unix.IFF_NOARP

// Functions gives virtual functions to Pods, and takes them back.
type Functions struct {
	conn  *conn
	ns    *netNamespace
	sysfs sysfs.FS
}

// Read returns a function that no Pod has, with its present state. The error is ErrFunctionBusy if
// its interface is not on the host.
func (k *Functions) Read(address string) (*sysfs.Function, FunctionState, error) {
	f, err := k.sysfs.Function(address)
	if err != nil {
		return nil, FunctionState{}, err
	}
	state, err := k.state(f)
	if err != nil {
		return nil, FunctionState{}, fmt.Errorf("virtual function %s: %w", address, err)
	}
	return f, state, nil
}

func (k *Functions) state(f *sysfs.Function) (FunctionState, error) {
	switch {
	case f.Driver == "":
		return FunctionState{}, fmt.Errorf("%w: no driver is bound to it: bind the driver of its kind, or vfio-pci", ErrInvalid)
	case f.Netdev == "" && !f.Userspace():
		return FunctionState{}, fmt.Errorf("%w: its driver is %s", ErrFunctionBusy, f.Driver)
	}
	parent, vf, err := k.parent(f)
	if err != nil {
		return FunctionState{}, err
	}
	state := FunctionState{VF: parent.functions[vf], RDMADevices: f.RDMADevices}
	if f.Netdev == "" {
		return state, nil
	}
	link, err := k.conn.linkByName(f.Netdev)
	if err != nil {
		return FunctionState{}, err
	}
	a := link.Attrs()
	if err := k.checkUnused(a); err != nil {
		return FunctionState{}, err
	}
	// Without a permanent MAC, the driver got none from the physical function, which reports the one that the
	// driver chose.
	state.OwnMAC = len(a.PermHWAddr) == 0 && (slices.Equal(state.VF.MAC, a.HardwareAddr) || isZeroMAC(state.VF.MAC))
	state.Netdev = &NetdevState{
		Name: a.Name, MAC: a.HardwareAddr.String(), MTU: a.MTU, Up: a.Flags&net.FlagUp != 0, Flags: a.RawFlags & netdevFlags,
		TxQueueLen: a.TxQLen, Group: a.Group, Alias: a.Alias, AltNames: a.AltNames,
	}
	return state, nil
}

// isZeroMAC reports whether the physical function has no MAC for a function.
func isZeroMAC(mac net.HardwareAddr) bool {
	return !slices.ContainsFunc(mac, func(b byte) bool { return b != 0 })
}

// checkUnused returns an error if the node itself uses the interface: it would lose its addresses, or its place
// in a bridge or bond, for good.
func (k *Functions) checkUnused(a *netlink.LinkAttrs) error {
	if a.MasterIndex != 0 {
		return fmt.Errorf("%w: %s is a port of a bridge or bond of the node: leave it out of the device pool", ErrInvalid, a.Name)
	}
	msgs, err := k.conn.dump(unix.RTM_GETADDR, nl.NewIfAddrmsg(unix.AF_UNSPEC))
	if err != nil {
		return fmt.Errorf("list addresses: %w", err)
	}
	for _, m := range msgs {
		if head := nl.DeserializeIfAddrmsg(m); int(head.Index) == a.Index && head.Scope == unix.RT_SCOPE_UNIVERSE {
			return fmt.Errorf("%w: %s has an address of the node: leave it out of the device pool", ErrInvalid, a.Name)
		}
	}
	return nil
}

// parent reads the physical function, and returns it with the number of f there. A driver does not report a
// function that it is resetting.
func (k *Functions) parent(f *sysfs.Function) (*parentLink, int, error) {
	parent, err := readParent(k.conn, f.Parent)
	if err != nil {
		return nil, 0, err
	}
	if _, ok := parent.functions[f.Index]; !ok {
		return nil, 0, fmt.Errorf("physical function %s reports no function %d: %w", f.Parent, f.Index, ErrFunctionReset)
	}
	return parent, f.Index, nil
}

// Attach configures the function and moves its interface into the Pod's namespace. On error the
// function is as before. A function with a userspace driver has no interface: only its settings at the
// physical function change.
func (k *Functions) Attach(ctx context.Context, f *Function) (AttachResult, error) {
	out, err := k.attach(ctx, f)
	if err != nil {
		return AttachResult{}, fmt.Errorf("attach virtual function %s as %s: %w", f.Address, f.Name, err)
	}
	return out, nil
}

func (k *Functions) attach(ctx context.Context, f *Function) (out AttachResult, err error) {
	if err := errors.Join(f.validate(), ctx.Err()); err != nil {
		return out, err
	}
	dev, err := k.sysfs.Function(f.Address)
	if err != nil {
		return out, err
	}
	parent, vf, err := k.parent(dev)
	if err != nil {
		return out, err
	}
	if err := parent.setUp(); err != nil {
		return out, err
	}
	present := f.Saved.fixed()
	if slices.Equal(present.MAC, f.Settings.MAC) {
		// The physical function reports a MAC that it does not enforce in the same way.
		present.MAC = nil
	}
	out.MAC = f.Settings.MAC.String()
	if err = parent.set(vf, present, &f.Settings); err != nil {
		err = fmt.Errorf("function %d of %s (driver %s): %w", vf, parent.name, dev.ParentDriver, err)
	}
	if err == nil && f.Saved.Netdev != nil {
		out, err = k.moveIn(ctx, f, dev)
	}
	if err == nil {
		err = k.moveRDMADevices(f, true)
	}
	if err != nil {
		return out, errors.Join(err, k.Detach(context.WithoutCancel(ctx), f))
	}
	return out, nil
}

// moveRDMADevices moves the function's RDMA devices into the Pod or back.
func (k *Functions) moveRDMADevices(f *Function, in bool) error {
	if len(f.Saved.RDMADevices) == 0 {
		return nil
	}
	pod, err := openNamespace(f.Netns)
	if err != nil {
		return err
	}
	defer pod.Close()
	if in {
		return moveRDMADevices(f.Saved.RDMADevices, k.ns, pod)
	}
	return moveRDMADevices(f.Saved.RDMADevices, pod, k.ns)
}

// moveIn moves the interface into the Pod and configures it there.
func (k *Functions) moveIn(ctx context.Context, f *Function, dev *sysfs.Function) (out AttachResult, err error) {
	link, err := k.conn.linkByName(dev.Netdev)
	if err != nil {
		return out, err
	}
	err = k.inPod(f, func(pod *podNamespace) error {
		// The kernel sets the interface down, moves it, and applies the other attributes in the Pod.
		attrs := []nl.NetlinkRequestData{
			nl.NewRtAttr(unix.IFLA_NET_NS_FD, nl.Uint32Attr(uint32(pod.ns.fd))),
			nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(f.Name)),
		}
		if f.MTU != 0 {
			attrs = append(attrs, nl.NewRtAttr(unix.IFLA_MTU, nl.Uint32Attr(uint32(f.MTU))))
		}
		if err := k.conn.setLink(link.Attrs().Index, false, attrs...); err != nil {
			return f.explainMove(err, pod, dev)
		}
		out.Index, err = pod.linkIndex(f.Name)
		if err != nil {
			return err
		}
		if f.Promiscuous {
			if err := pod.setPromiscuous(out.Index, true); err != nil {
				return fmt.Errorf("promiscuous: %w: %w", ErrRejected, err)
			}
		}
		if err := pod.configure(ctx, &f.PodInterface, f.Name, out.Index); err != nil {
			return err
		}
		moved, err := pod.waitForCarrier(ctx, f.Name, k.conn, dev.Parent)
		if err == nil {
			out.MAC, out.MTU = moved.HardwareAddr.String(), moved.MTU
		}
		return err
	})
	return out, err
}

// inPod runs fn in the Pod's namespace.
func (k *Functions) inPod(f *Function, fn func(*podNamespace) error) error {
	return inPodNamespace(f.Netns, func(pod *podNamespace) error {
		pod.observe = k.conn.observe
		return fn(pod)
	})
}

// explainMove explains the kernel's answers to the message that moves the interface.
func (f *Function) explainMove(err error, pod *podNamespace, dev *sysfs.Function) error {
	if errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("%s: %w: %w", f.Name, ErrNameTaken, err)
	}
	if moved, _ := pod.linkByAddress(f.Address); moved != nil && f.MTU != 0 {
		return fmt.Errorf("mtu %d (driver %s): %w: %w", f.MTU, dev.Driver, ErrRejected, err)
	}
	return fmt.Errorf("move %s into the Pod: %w", dev.Netdev, err)
}

// Detach takes the function back from the Pod, and makes it as it was before Attach. It is no error if
// the Pod's namespace or the function is gone. The kernel moves the interfaces of a namespace that is
// gone to the host, a moment later and under any name.
func (k *Functions) Detach(ctx context.Context, f *Function) error {
	if err := k.detach(ctx, f); err != nil && !errors.Is(err, sysfs.ErrNoFunction) {
		return fmt.Errorf("detach virtual function %s: %w", f.Address, err)
	}
	return nil
}

func (k *Functions) detach(ctx context.Context, f *Function) error {
	if f.Netns != "" {
		if err := k.moveOut(f); err != nil && !errors.Is(err, ErrNamespaceGone) {
			return err
		}
	}
	dev, err := k.awaitOnHost(ctx, f)
	if err != nil {
		return err
	}
	parent, vf, err := k.parent(dev)
	if err != nil {
		return err
	}
	err = parent.setUp()
	if dev.Netdev == "" || f.Saved.Netdev == nil {
		return errors.Join(err, parent.restore(vf, f.Saved.fixed(), &f.Settings))
	}
	link, findErr := k.conn.linkByName(dev.Netdev)
	if findErr != nil {
		return findErr
	}
	// Each step follows even if one fails: the more is as before, the less another Pod can get.
	a, saved := link.Attrs(), f.Saved.Netdev
	return errors.Join(err, k.resetNetdev(a, saved), parent.restore(vf, f.Saved.fixed(), &f.Settings), k.restoreNetdev(a, saved))
}

// moveOut moves the RDMA devices and the interface to the host, the latter under a name that no other link
// has, and deletes the Pod's rules.
func (k *Functions) moveOut(f *Function) error {
	if err := k.moveRDMADevices(f, false); err != nil {
		return err
	}
	if f.Saved.Netdev == nil {
		return nil
	}
	return k.inPod(f, func(pod *podNamespace) error {
		link, err := pod.linkByAddress(f.Address)
		if err != nil {
			return err
		}
		if link != nil {
			// The host may have links of these names.
			if err := pod.changeAltNames(unix.RTM_DELLINKPROP, link.Index, link.AltNames...); err != nil {
				return err
			}
			err := pod.setLink(link.Index, false,
				nl.NewRtAttr(unix.IFLA_NET_NS_FD, nl.Uint32Attr(uint32(k.ns.fd))),
				nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(temporaryName(f.Address))))
			if err != nil {
				return fmt.Errorf("move %s to the host: %w", link.Name, err)
			}
		}
		return pod.deleteRules(&f.PodInterface)
	})
}

// returnTimeout bounds the wait for the kernel to move an interface out of a namespace that is gone.
const returnTimeout = 5 * time.Second

// awaitOnHost waits until the interface is on the host. The kernel deletes namespaces in the
// background, one batch after the other.
func (k *Functions) awaitOnHost(ctx context.Context, f *Function) (*sysfs.Function, error) {
	ctx, cancel := context.WithTimeout(ctx, returnTimeout)
	defer cancel()
	tick := time.NewTicker(carrierPollInterval)
	defer tick.Stop()
	for {
		dev, err := k.sysfs.Function(f.Address)
		if err != nil || f.Saved.Netdev == nil || dev.Netdev != "" || dev.Driver == "" || dev.Userspace() {
			return dev, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: wait for its return: %w", ErrFunctionBusy, ctx.Err())
		case <-tick.C:
		}
	}
}

// resetNetdev sets the interface down, and removes what the Pod has changed.
func (k *Functions) resetNetdev(a *netlink.LinkAttrs, saved *NetdevState) error {
	foreign := slices.DeleteFunc(slices.Clone(a.AltNames), func(name string) bool { return slices.Contains(saved.AltNames, name) })
	names := k.conn.changeAltNames(unix.RTM_DELLINKPROP, a.Index, foreign...)
	msg := nl.NewIfInfomsg(unix.AF_UNSPEC)
	msg.Index, msg.Change, msg.Flags = int32(a.Index), unix.IFF_UP|netdevFlags, saved.Flags
	err := k.conn.send(unix.RTM_NEWLINK, 0, msg,
		nl.NewRtAttr(unix.IFLA_IFALIAS, []byte(saved.Alias)),
		nl.NewRtAttr(unix.IFLA_GROUP, nl.Uint32Attr(saved.Group)),
		nl.NewRtAttr(unix.IFLA_TXQLEN, nl.Uint32Attr(uint32(saved.TxQueueLen))))
	if err != nil {
		err = fmt.Errorf("reset %s: %w", a.Name, err)
	}
	return errors.Join(names, err)
}

// restoreNetdev gives an interface that is down its MAC, MTU, names and state. The MAC is set even if the
// interface has it, because a driver that was told to forget it must hear it again. If another link has taken a
// name, the interface does without it. An MTU that the driver does not allow any more stays.
func (k *Functions) restoreNetdev(a *netlink.LinkAttrs, saved *NetdevState) error {
	mac, err := net.ParseMAC(saved.MAC)
	if err != nil {
		return fmt.Errorf("read the saved MAC: %w", err)
	}
	index, address := a.Index, nl.NewRtAttr(unix.IFLA_ADDRESS, mac)
	err = k.conn.setLink(index, false, address)
	if errors.Is(err, unix.EADDRNOTAVAIL) {
		// The driver has missed that the physical function allows the MAC: it asks again when the interface
		// is set up.
		err = errors.Join(k.conn.setLink(index, true), k.conn.setLink(index, true, address), k.resetNetdev(a, saved))
	}
	if err != nil {
		return fmt.Errorf("restore MAC address %s: %w", mac, err)
	}
	_ = k.conn.setLink(index, false, nl.NewRtAttr(unix.IFLA_MTU, nl.Uint32Attr(uint32(saved.MTU))))
	err = k.conn.setLink(index, false, nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(saved.Name)))
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("restore name %s: %w", saved.Name, err)
	}
	for _, name := range saved.AltNames {
		if err := k.conn.changeAltNames(unix.RTM_NEWLINKPROP, index, name); err != nil && !errors.Is(err, unix.EEXIST) {
			return err
		}
	}
	if !saved.Up {
		return nil
	}
	if err := k.conn.setLink(index, true); err != nil {
		return fmt.Errorf("set %s up: %w", saved.Name, err)
	}
	return nil
}
