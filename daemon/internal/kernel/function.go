// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
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
	// RDMAIndexes are the kernel's indexes of the RDMA devices, by name, if a Pod can have them of its own.
	RDMAIndexes map[string]uint32 `json:"rdmaIndexes,omitempty"`
}

// fixed returns the settings without a MAC that the physical function has not fixed.
func (s *FunctionState) fixed() *VFSettings {
	vf := s.VF
	if s.OwnMAC {
		vf.MAC = make(net.HardwareAddr, len(macAddress{}))
	}
	return &vf
}

// Functions gives virtual functions to Pods, and takes them back.
type Functions struct {
	conn      *conn
	ns        *netNamespace
	sysfs     sysfs.FS
	sandboxes *Sandboxes
}

// Read returns a function that no Pod has, with its present state. The error is ErrFunctionBusy if
// its interface or an RDMA device is not on the host.
func (k *Functions) Read(ctx context.Context, address string) (*sysfs.Function, FunctionState, error) {
	f, err := k.sysfs.Function(address)
	if err != nil {
		return nil, FunctionState{}, err
	}
	state, err := k.state(ctx, f)
	if err != nil {
		return nil, FunctionState{}, fmt.Errorf("virtual function %s: %w", address, err)
	}
	return f, state, nil
}

func (k *Functions) state(ctx context.Context, f *sysfs.Function) (FunctionState, error) {
	if err := checkDriver(f); err != nil {
		return FunctionState{}, err
	}
	if f.RDMAElsewhere {
		return FunctionState{}, fmt.Errorf("%w: its RDMA device", ErrFunctionBusy)
	}
	parent, vf, err := k.parent(f)
	if err != nil {
		return FunctionState{}, err
	}
	state := FunctionState{VF: parent.functions[vf], RDMADevices: f.RDMADevices}
	if state.RDMAIndexes, err = k.rdmaIndexes(f.RDMADevices); err != nil {
		return FunctionState{}, err
	}
	if f.Netdev == "" {
		return state, nil
	}
	netdev, err := k.netdev(f)
	if err != nil {
		return FunctionState{}, err
	}
	if err := errors.Join(netdev.checkUnused(), k.checkNoUppers(ctx, netdev.attrs)); err != nil {
		return FunctionState{}, err
	}
	// Without a permanent MAC, the driver got none from the physical function, which reports the one that the
	// driver chose.
	a := netdev.attrs
	state.OwnMAC = len(a.PermHWAddr) == 0 && (slices.Equal(state.VF.MAC, a.HardwareAddr) || isZeroMAC(state.VF.MAC))
	state.Netdev = netdev.state()
	return state, nil
}

// checkDriver returns an error if the function's driver gives Pods neither an interface nor a device for programs.
func checkDriver(f *sysfs.Function) error {
	const bindOther = "bind the driver of its kind, or vfio-pci"
	switch {
	case f.Driver == "":
		return fmt.Errorf("%w: no driver is bound to it: %s", ErrInvalid, bindOther)
	case len(f.OtherNetdevs) > 0:
		return fmt.Errorf("%w: it has the network interfaces %s and %s, and must have one: functions with several ports, as of driver %s, are not supported",
			ErrInvalid, f.Netdev, strings.Join(f.OtherNetdevs, " and "), f.Driver)
	case f.Netdev != "" || f.Userspace():
		return nil
	case f.NetdevElsewhere:
		return fmt.Errorf("%w: its driver is %s", ErrFunctionBusy, f.Driver)
	}
	return fmt.Errorf("%w: its driver %s gives it no network interface, as those for vDPA: %s", ErrInvalid, f.Driver, bindOther)
}

// netdev returns the function's interface on the host.
func (k *Functions) netdev(f *sysfs.Function) (*functionNetdev, error) {
	link, err := k.conn.linkByName(f.Netdev)
	if err != nil {
		return nil, err
	}
	if device := link.Attrs().ParentDev; device != "" && device != f.Address {
		return nil, fmt.Errorf("%w: %s is the interface of %s now", ErrFunctionReset, f.Netdev, device)
	}
	return &functionNetdev{conn: k.conn, driver: f.Driver, attrs: link.Attrs()}, nil
}

// checkNoUppers returns an error if a link in a Pod is on the interface, such as that of another CNI plugin: it would
// end with the next Pod that has the function.
func (k *Functions) checkNoUppers(ctx context.Context, a *netlink.LinkAttrs) error {
	return k.forEachUppers(ctx, "", a, func(_ *conn, uppers []upperLink) error {
		return fmt.Errorf("%w: link %s of a Pod is on %s: leave it out of the device pool", ErrInvalid, uppers[0].name, a.Name)
	})
}

// isZeroMAC reports whether the physical function has no MAC for a function.
func isZeroMAC(mac net.HardwareAddr) bool {
	return !slices.ContainsFunc(mac, func(b byte) bool { return b != 0 })
}

// parent reads the physical function, and returns it with the number of f there. A driver does not report a
// function that it is resetting.
func (k *Functions) parent(f *sysfs.Function) (*parentLink, int, error) {
	parent, err := readParent(k.conn, f.Parent, f.ParentDriver)
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
	present := parent.functions[vf]
	present.MAC = nil // the physical function reports a MAC that it does not enforce in the same way
	out.MAC = f.Settings.MAC.String()
	if err = parent.set(ctx, vf, &present, &f.Settings); err != nil {
		err = fmt.Errorf("function %d of %s (driver %s): %w", vf, parent.name, dev.ParentDriver, err)
	}
	if err == nil && f.Saved.Netdev != nil {
		out, err = k.moveIn(ctx, f, dev)
	}
	if err == nil {
		err = k.moveRDMADevices(f, true)
	}
	if err != nil {
		_, detachErr := k.Detach(context.WithoutCancel(ctx), f)
		return out, errors.Join(err, detachErr)
	}
	return out, nil
}

// moveRDMADevices moves the RDMA devices of the function into the Pod, or to the host.
func (k *Functions) moveRDMADevices(f *Function, in bool) error {
	indexes := f.Saved.RDMAIndexes
	if len(indexes) == 0 {
		return nil
	}
	pod, err := openNamespace(f.Netns)
	if err != nil {
		return err
	}
	defer pod.Close()
	if !in {
		return pod.do(func() error {
			_, err := moveRDMADevices(kernelRDMA{}, indexes, k.ns)
			return err
		})
	}
	return k.ns.do(func() error {
		moved, err := moveRDMADevices(kernelRDMA{}, indexes, pod)
		if err == nil && moved < len(indexes) {
			return fmt.Errorf("%w: its RDMA devices have changed", ErrFunctionReset)
		}
		return err
	})
}

// rdmaIndexes returns the indexes of RDMA devices on the host.
func (k *Functions) rdmaIndexes(names []string) (indexes map[string]uint32, err error) {
	if len(names) == 0 {
		return nil, nil
	}
	err = k.ns.do(func() error {
		indexes, err = rdmaIndexes(kernelRDMA{}, names)
		return err
	})
	return indexes, err
}

// moveIn moves the interface into the Pod and configures it there.
func (k *Functions) moveIn(ctx context.Context, f *Function, dev *sysfs.Function) (out AttachResult, err error) {
	link, err := k.conn.linkByName(dev.Netdev)
	if err != nil {
		return out, err
	}
	err = k.inPod(f, func(pod *podNamespace) error {
		pod.driver = dev.Driver
		// The kernel sets the interface down, moves it, and renames it in the Pod.
		err := k.conn.setLink(link.Attrs().Index, false, append(fixedAttributes(),
			nl.NewRtAttr(unix.IFLA_NET_NS_FD, nl.Uint32Attr(uint32(pod.ns.fd))),
			nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(f.Name)))...)
		switch {
		case errors.Is(err, unix.EEXIST):
			return fmt.Errorf("%s: %w: %w", f.Name, ErrNameTaken, err)
		case err != nil:
			return fmt.Errorf("move %s into the Pod: %w", dev.Netdev, err)
		}
		if out.Index, err = pod.linkIndex(f.Name); err != nil {
			return err
		}
		if err := f.setOptions(ctx, pod, out.Index); err != nil {
			return err
		}
		if err := pod.configure(ctx, &f.PodInterface, f.Name, out.Index); err != nil {
			return err
		}
		moved, err := pod.waitForCarrier(ctx, f.Name, f.carrierTimeout(), k.conn, dev.Parent)
		if err != nil {
			return err
		}
		out.MAC, out.MTU = moved.HardwareAddr.String(), moved.MTU
		return pod.waitForDAD(ctx, &f.PodInterface, out.Index)
	})
	return out, err
}

// setOptions sets the options of the interface, which is down.
func (f *Function) setOptions(ctx context.Context, pod *podNamespace, index int) error {
	if f.MTU != 0 {
		mtu := nl.NewRtAttr(unix.IFLA_MTU, nl.Uint32Attr(uint32(f.MTU)))
		err := whileReset(ctx, pod.driver, func() error { return pod.setLink(index, false, mtu) })
		if err != nil {
			return fmt.Errorf("mtu %d (driver %s): %w", f.MTU, pod.driver, rejected(err))
		}
	}
	if f.Promiscuous {
		if err := pod.setPromiscuous(index); err != nil {
			return fmt.Errorf("promiscuous (driver %s): %w", pod.driver, rejected(err))
		}
	}
	return nil
}

// carrierTimeout bounds the wait for the interface's carrier.
func (f *Function) carrierTimeout() time.Duration {
	if s := f.Settings.LinkState; s != nil && *s == LinkStateDisable {
		return 0
	}
	if f.V6.IsValid() {
		return carrierTimeoutV6
	}
	return carrierTimeout
}

// inPod runs fn in the Pod's namespace.
func (k *Functions) inPod(f *Function, fn func(*podNamespace) error) error {
	return inPodNamespace(f.Netns, func(pod *podNamespace) error {
		pod.observe = k.conn.observe
		return fn(pod)
	})
}

// Detach takes the function back from the Pod, and makes it as it was before Attach. It is no error if
// the Pod's namespace or the function is gone. The kernel moves the interfaces of a namespace that is
// gone to the host, a moment later and under any name.
//
// A rate that the driver rejects is pending, as some set none while the port has no link: the function is as before
// but for that rate, which is to be set before another Pod gets the function.
func (k *Functions) Detach(ctx context.Context, f *Function) (pending *VFRate, err error) {
	pending, err = k.detach(ctx, f)
	if errors.Is(err, sysfs.ErrNoFunction) || errors.Is(err, sysfs.ErrUserspaceParent) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("detach virtual function %s: %w", f.Address, err)
	}
	return pending, nil
}

func (k *Functions) detach(ctx context.Context, f *Function) (pending *VFRate, err error) {
	if f.Netns != "" {
		if err := k.moveOut(ctx, f); err != nil && !errors.Is(err, ErrNamespaceGone) {
			return nil, err
		}
	}
	dev, err := k.awaitOnHost(ctx, f)
	if err != nil {
		return nil, err
	}
	var netdev *functionNetdev
	if dev.Netdev != "" && f.Saved.Netdev != nil {
		if netdev, err = k.netdev(dev); err != nil {
			return nil, err
		}
	}
	cleanErr := k.clean(ctx, f, netdev)
	parent, vf, err := k.parent(dev)
	if err != nil {
		return nil, errors.Join(cleanErr, err)
	}
	ctx, cancel := context.WithTimeout(ctx, resetTimeout) // for all steps together; each is tried once at least
	defer cancel()
	upErr := parent.setUp() // explains why other steps fail: a function can be as before without
	pending, err = restore(ctx, f, netdev, parent, vf)
	if err = errors.Join(cleanErr, err); err != nil {
		return nil, errors.Join(upErr, err)
	}
	return pending, nil
}

// restore makes a function on the host as it was before Attach. Each step follows even if one fails: the more is as
// before, the less another Pod can get. Only an interface with an XDP program of the Pod stays down. netdev is nil
// if the function has no interface.
func restore(ctx context.Context, f *Function, netdev *functionNetdev, parent *parentLink, vf int) (pending *VFRate, err error) {
	if netdev == nil {
		return parent.restore(ctx, vf, f.Saved.fixed(), &f.Settings)
	}
	resetErr := netdev.reset(ctx, f.Saved.Netdev)
	programErr := netdev.removeXDP(f.Saved.Netdev)
	pending, err = parent.restore(ctx, vf, f.Saved.fixed(), &f.Settings)
	if programErr != nil {
		return nil, errors.Join(resetErr, programErr, err)
	}
	return pending, errors.Join(resetErr, err, netdev.restore(ctx, f.Saved.Netdev))
}

// moveOut moves the RDMA devices and the interface to the host, the latter under a name that no other link
// has, and deletes the Pod's rules.
func (k *Functions) moveOut(ctx context.Context, f *Function) error {
	if err := k.moveRDMADevices(f, false); err != nil {
		return err
	}
	if f.Saved.Netdev == nil {
		return nil
	}
	return k.inPod(f, func(pod *podNamespace) error {
		link, err := pod.linkByAddress(ctx, f.Address)
		if err != nil {
			return err
		}
		if link != nil {
			// An IPVTAP can be found only here: it does not report the namespace of the link below.
			uppers, err := pod.uppers(link.Index)
			if err = errors.Join(ignoreInterrupted(err), pod.deleteUppers(ctx, uppers)); err != nil {
				return err
			}
			// The host may have links of these names.
			if err := pod.changeAltNames(unix.RTM_DELLINKPROP, link.Index, link.AltNames...); err != nil {
				return err
			}
			err = pod.setLink(link.Index, false,
				nl.NewRtAttr(unix.IFLA_NET_NS_FD, nl.Uint32Attr(uint32(k.ns.fd))),
				nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(temporaryName(f.Address))))
			if err != nil {
				return fmt.Errorf("move %s to the host: %w", link.Name, err)
			}
		}
		return pod.deleteRules(&f.PodInterface)
	})
}

const (
	// returnTimeout bounds the wait for the kernel to move an interface out of a namespace that is gone.
	returnTimeout = 5 * time.Second
	// returnPollInterval is the time between two reads of sysfs. The wait ends with a folder of the PCI device,
	// which no notification names, and few DELs wait at all.
	returnPollInterval = 50 * time.Millisecond
)

// awaitOnHost waits until the interface and the RDMA devices are on the host. The kernel deletes namespaces in the
// background, one batch after the other. RDMA devices and interfaces that do not return are no error if no other
// namespace has them: their driver may be gone, or an administrator has bound another one.
func (k *Functions) awaitOnHost(ctx context.Context, f *Function) (*sysfs.Function, error) {
	ctx, cancel := context.WithTimeout(ctx, returnTimeout)
	defer cancel()
	tick := time.NewTicker(returnPollInterval)
	defer tick.Stop()
	for {
		dev, err := k.sysfs.Function(f.Address)
		if err != nil {
			return nil, err
		}
		returned := f.Saved.Netdev == nil || dev.Netdev != "" || dev.Driver == "" || dev.Userspace()
		if returned && !dev.RDMAElsewhere {
			return dev, nil
		}
		select {
		case <-ctx.Done():
			switch {
			case !returned && dev.NetdevElsewhere:
				return nil, fmt.Errorf("%w: wait for its return: %w", ErrFunctionBusy, ctx.Err())
			case dev.RDMAElsewhere:
				return nil, fmt.Errorf("%w: wait for the return of its RDMA device: %w", ErrFunctionBusy, ctx.Err())
			}
			return dev, nil
		case <-tick.C:
		}
	}
}

// clean restores the names of the RDMA devices, and deletes links on the interface. A Pod cannot rename a device, or
// make a link on an interface, that is on the host.
func (k *Functions) clean(ctx context.Context, f *Function, netdev *functionNetdev) error {
	var errs []error
	if len(f.Saved.RDMAIndexes) > 0 {
		errs = append(errs, k.ns.do(func() error { return renameRDMADevices(kernelRDMA{}, f.Saved.RDMAIndexes) }))
	}
	if netdev != nil {
		errs = append(errs, k.forEachUppers(ctx, f.Netns, netdev.attrs, func(c *conn, uppers []upperLink) error {
			return c.deleteUppers(ctx, uppers)
		}))
	}
	return errors.Join(errs...)
}

// forEachUppers calls visit with the links on the interface, such as VLANs, of each Pod's namespace that has some:
// they receive the frames of the next Pod. The host has no sign of them: sysfs shows links of its own namespace only,
// and a Pod can give a link to another Pod. To ask 250 namespaces takes about 0.1 s. An error does not end the loop,
// because a Pod must not protect the links of others.
func (k *Functions) forEachUppers(ctx context.Context, netns string, a *netlink.LinkAttrs, visit func(*conn, []upperLink) error) error {
	var errs []error
	inNamespace := func(c *conn) error {
		c.observe = k.conn.observe
		uppers, err := c.foreignUppers(k.ns, a.Index)
		if err == nil && len(uppers) > 0 {
			err = visit(c, uppers)
		}
		errs = append(errs, err)
		return nil
	}
	if netns != "" { // it may be mounted elsewhere
		if err := visitNamespace(netns, map[namespaceID]bool{}, inNamespace); err != nil && !errors.Is(err, ErrNamespaceGone) {
			errs = append(errs, fmt.Errorf("%s: %w", netns, err))
		}
	}
	errs = append(errs, k.sandboxes.forEach(ctx, inNamespace))
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("links of Pods on %s: %w", a.Name, err)
	}
	return nil
}
