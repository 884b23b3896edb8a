// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"

	"github.com/patchbay-cni/patchbay/internal/network"
)

// claimAddresses covers the addresses of all interfaces. On error those that were claimed are
// given back. Static ones come first: one that is taken may stay so, and the Pod must
// not take other dynamic addresses with each try.
func (s *Service) claimAddresses(ctx context.Context, pod *corev1.Pod, rec *Record, asked []requestedInterface) error {
	claimed := make([]bool, len(asked))
	err := s.claimChosen(ctx, rec, asked, claimed, (*Interface).hasStaticAddress)
	if err == nil {
		err = s.claimChosen(ctx, rec, asked, claimed, func(ifc *Interface) bool { return !ifc.hasStaticAddress() })
	}
	if err == nil {
		err = s.probeConflicts(ctx, pod, rec, claimed)
	}
	if err == nil {
		return nil
	}
	for i := range slices.Backward(rec.Interfaces) {
		if claimed[i] {
			s.discardAddresses(&rec.Interfaces[i])
		}
	}
	return err
}

// claimChosen covers the addresses of the interfaces that are chosen, side by side, and
// marks those that have theirs.
func (s *Service) claimChosen(ctx context.Context, rec *Record, asked []requestedInterface, claimed []bool, chosen func(*Interface) bool) error {
	group, each := errgroup.WithContext(ctx)
	for i := range rec.Interfaces {
		if !chosen(&rec.Interfaces[i]) {
			continue
		}
		group.Go(func() error {
			ifc := &rec.Interfaces[i]
			v4, v6 := asked[i].addressRequests()
			a4, a6, err := s.Addresses.Claim(each, &ifc.Network, v4, v6)
			if err != nil {
				return fmt.Errorf("interface %s: %w", ifc.Name, err)
			}
			claimed[i] = true
			ifc.V4, ifc.V6 = withSubnetLength(ifc.Network.V4, a4), withSubnetLength(ifc.Network.V6, a6)
			if err := ifc.checkGateways(); err != nil {
				return fmt.Errorf("interface %s: %w", ifc.Name, err)
			}
			return nil
		})
	}
	return group.Wait()
}

// withSubnetLength is the address with its subnet's prefix length; the zero value when
// there is none.
func withSubnetLength(subnet *network.Subnet, a netip.Addr) netip.Prefix {
	if subnet == nil || !a.IsValid() {
		return netip.Prefix{}
	}
	return netip.PrefixFrom(a, subnet.CIDR.Bits())
}

// maxProbeAttempts is how many dynamic addresses of an interface one ADD tries.
const maxProbeAttempts = 3

// probeConflicts asks the networks that want it whether something else has the addresses that
// were claimed, before anything uses them, all interfaces side by side. A dynamic
// address that is in use goes into quarantine and another is claimed; a static one fails
// the ADD. An interface that has lost its addresses has nothing claimed any more.
func (s *Service) probeConflicts(ctx context.Context, pod *corev1.Pod, rec *Record, claimed []bool) error {
	group, each := errgroup.WithContext(ctx)
	for i := range rec.Interfaces {
		ifc := &rec.Interfaces[i]
		if !ifc.Network.ConflictProbe || len(ifc.addressSlots()) == 0 {
			continue
		}
		group.Go(func() error {
			err := s.probeInterface(each, pod, ifc)
			claimed[i] = len(ifc.addressSlots()) > 0
			if err != nil {
				return fmt.Errorf("interface %s: %w", ifc.Name, err)
			}
			return nil
		})
	}
	return group.Wait()
}

// probeInterface asks for the addresses of one interface, and for those that take their place.
func (s *Service) probeInterface(ctx context.Context, pod *corev1.Pod, ifc *Interface) error {
	parent, err := s.HostLinks.Parent(ctx, &ifc.Network)
	if err != nil {
		return fmt.Errorf("network %s: %w", ifc.Network.Ref, err)
	}
	for try, sides := 1, ifc.addressSlots(); ; try++ {
		addrs := make([]netip.Addr, len(sides))
		for i, x := range sides {
			addrs[i] = x.address.Addr()
		}
		macs, err := s.Prober.Probe(ctx, parent, addrs)
		if err != nil {
			return fmt.Errorf("network %s: %w", ifc.Network.Ref, err)
		}
		sides = slices.DeleteFunc(sides, func(x addressSlot) bool { return macs[x.address.Addr()] == nil })
		if len(sides) == 0 {
			return nil
		}
		if err := s.quarantineConflicts(pod, ifc, sides, macs); err != nil {
			return err
		}
		if try == maxProbeAttempts {
			return fmt.Errorf("%w: %w: network %s: other machines have %d addresses in a row: keep theirs out of allocation_pool and allocation_pool_v6 of spec.Options",
				ErrTryAgain, ErrConflict, ifc.Network.Ref, maxProbeAttempts)
		}
		if err := s.claimReplacements(ctx, ifc, sides); err != nil {
			return err
		}
	}
}

// quarantineConflicts puts the addresses into quarantine that other machines have, and reports each.
// A static one fails, and takes nothing from the other family.
func (s *Service) quarantineConflicts(pod *corev1.Pod, ifc *Interface, sides []addressSlot, macs map[netip.Addr]net.HardwareAddr) error {
	conflict := func(x addressSlot) error {
		a := x.address.Addr()
		return fmt.Errorf("%w: network %s: another machine, MAC %s, has %v, which Pod %s/%s was to get",
			ErrConflict, ifc.Network.Ref, macs[a], a, pod.Namespace, pod.Name)
	}
	if i := slices.IndexFunc(sides, func(x addressSlot) bool { return x.static }); i >= 0 {
		err := fmt.Errorf("%w: remove it from that machine, or ask for another address", conflict(sides[i]))
		s.KubeClient.ReportConflict(nil, &ifc.Network, err) // the Pod is refused with it
		return err
	}
	for _, x := range sides {
		err := conflict(x)
		kept := s.Addresses.Quarantine(&ifc.Network, x.address.Addr())
		*x.address = netip.Prefix{}
		if !kept {
			err = fmt.Errorf("%w; too many addresses are in quarantine already: look for that machine, which may answer for any address", err)
			s.KubeClient.ReportConflict(nil, &ifc.Network, err)
			return fmt.Errorf("%w: %w", ErrTryAgain, err)
		}
		s.KubeClient.ReportConflict(pod, &ifc.Network, fmt.Errorf("%w: no Pod gets it for an hour", err))
	}
	return nil
}

// claimReplacements claims other dynamic addresses for those that were dismissed.
func (s *Service) claimReplacements(ctx context.Context, ifc *Interface, sides []addressSlot) error {
	of := func(place *netip.Prefix) AddressRequest {
		return AddressRequest{Dynamic: slices.ContainsFunc(sides, func(x addressSlot) bool { return x.address == place })}
	}
	v4, v6 := of(&ifc.V4), of(&ifc.V6)
	a4, a6, err := s.Addresses.Claim(ctx, &ifc.Network, v4, v6)
	if err != nil {
		return err
	}
	if v4.Dynamic {
		ifc.V4 = withSubnetLength(ifc.Network.V4, a4)
	}
	if v6.Dynamic {
		ifc.V6 = withSubnetLength(ifc.Network.V6, a6)
	}
	return ifc.checkGateways()
}

// discardAddresses gives back what claim gave.
func (s *Service) discardAddresses(ifc *Interface) {
	s.Addresses.Discard(&ifc.Network, ifc.V4.Addr(), ifc.V6.Addr())
}

// attachInterfaces makes all interfaces, side by side. The first failure ends the others;
// all have ended when it returns.
func (s *Service) attachInterfaces(ctx context.Context, rec *Record) error {
	group, each := errgroup.WithContext(ctx)
	for i := range rec.Interfaces {
		group.Go(func() error {
			ifc := &rec.Interfaces[i]
			if err := s.attachInterface(each, rec, ifc); err != nil {
				return fmt.Errorf("attach %s to network %s: %w", ifc.Name, ifc.Network.Ref, err)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	// Whoever waited for the interfaces is gone: nobody would use them.
	return context.Cause(ctx)
}

// attachInterface makes one interface.
func (s *Service) attachInterface(ctx context.Context, rec *Record, ifc *Interface) error {
	b, err := s.backendFor(&ifc.Network)
	if err != nil {
		return err
	}
	if ifc.needsHostLink() {
		if ifc.Parent, err = s.HostLinks.Parent(ctx, &ifc.Network); err != nil {
			return err
		}
	}
	if err := b.Attach(ctx, rec, ifc); err != nil {
		return err
	}
	// What cannot be told to the runtime must fail while it can be undone.
	_, err = ifc.result(rec.Netns)
	return err
}

// detachInterfaces detaches all interfaces in reverse order. One that fails does not keep
// the others.
func (s *Service) detachInterfaces(ctx context.Context, rec *Record) error {
	rec = s.withoutGoneNetns(rec)
	var failed []error
	for i := range slices.Backward(rec.Interfaces) {
		ifc := &rec.Interfaces[i]
		b, err := s.backendFor(&ifc.Network)
		if err == nil {
			err = b.Detach(ctx, rec, ifc)
		}
		if err != nil {
			failed = append(failed, fmt.Errorf("detach %s from network %s: %w", ifc.Name, ifc.Network.Ref, err))
		}
	}
	return errors.Join(failed...)
}

// withoutGoneNetns empties Netns when there is no such namespace: after a
// reboot the path may be another sandbox's.
func (s *Service) withoutGoneNetns(rec *Record) *Record {
	if !s.netnsGone(rec) {
		return rec
	}
	rec = rec.Clone()
	rec.Netns = ""
	return rec
}

// netnsGone is false when it cannot be told.
func (s *Service) netnsGone(rec *Record) bool {
	if rec.BootID != s.BootID {
		return true
	}
	there, err := s.NetworkNamespaces.Exists(rec.Netns)
	return err == nil && !there
}

// backendFor returns who makes the network's interfaces.
func (s *Service) backendFor(n *network.Network) (Backend, error) {
	b := s.Backends[n.Type]
	if n.Delegates() {
		b = s.Delegate
	}
	if b != nil {
		return b, nil
	}
	return nil, fmt.Errorf("network %s: NetworkType %s is not supported on this node", n.Ref, n.Type)
}
