// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"

	"github.com/patchbay-cni/patchbay/network"
)

// claim covers the addresses of all interfaces. On error those that were claimed are
// given back. Static ones come first: one that is taken may stay so, and the Pod must
// not take other dynamic addresses with each try.
func (s *Service) claim(ctx context.Context, pod *corev1.Pod, rec *Record, asked []want) error {
	claimed := make([]bool, len(asked))
	err := s.claimSome(ctx, rec, asked, claimed, (*Interface).static)
	if err == nil {
		err = s.claimSome(ctx, rec, asked, claimed, func(ifc *Interface) bool { return !ifc.static() })
	}
	if err == nil {
		err = s.probe(ctx, pod, rec, claimed)
	}
	if err == nil {
		return nil
	}
	for i := range slices.Backward(rec.Interfaces) {
		if claimed[i] {
			s.discard(&rec.Interfaces[i])
		}
	}
	return err
}

func (ifc *Interface) static() bool { return ifc.StaticV4 || ifc.StaticV6 }

// claimSome covers the addresses of the interfaces that are chosen, side by side, and
// marks those that have theirs.
func (s *Service) claimSome(ctx context.Context, rec *Record, asked []want, claimed []bool, chosen func(*Interface) bool) error {
	group, each := errgroup.WithContext(ctx)
	for i := range rec.Interfaces {
		if !chosen(&rec.Interfaces[i]) {
			continue
		}
		group.Go(func() error {
			ifc := &rec.Interfaces[i]
			v4, v6 := asked[i].addresses()
			a4, a6, err := s.Addresses.Claim(each, &ifc.Network, v4, v6)
			if err != nil {
				return fmt.Errorf("interface %s: %w", ifc.Name, err)
			}
			claimed[i] = true
			ifc.V4, ifc.V6 = within(ifc.Network.V4, a4), within(ifc.Network.V6, a6)
			if err := ifc.checkGateways(); err != nil {
				return fmt.Errorf("interface %s: %w", ifc.Name, err)
			}
			return nil
		})
	}
	return group.Wait()
}

// checkGateways reports a dynamic address that the Pod's own policy routes lead to: the
// kernel would refuse them, and give no reason. The next try gets another address.
func (ifc *Interface) checkGateways() error {
	for _, r := range ifc.Proutes {
		if r.Gateway == ifc.V4.Addr() || r.Gateway == ifc.V6.Addr() {
			return fmt.Errorf("the policy route to %s has gateway %s, which is a dynamic address of network %s and was just claimed for this Pod: %w, and keep gateways out of the network's pool",
				r.Dst, r.Gateway, ifc.Network.Ref, ErrTryAgain)
		}
	}
	return nil
}

// within is the address with its subnet's prefix length; the zero value when
// there is none.
func within(subnet *network.Subnet, a netip.Addr) netip.Prefix {
	if subnet == nil || !a.IsValid() {
		return netip.Prefix{}
	}
	return netip.PrefixFrom(a, subnet.CIDR.Bits())
}

// plug makes all interfaces, side by side. The first failure ends the others;
// all have ended when it returns.
func (s *Service) plug(ctx context.Context, rec *Record) error {
	group, each := errgroup.WithContext(ctx)
	for i := range rec.Interfaces {
		group.Go(func() error {
			ifc := &rec.Interfaces[i]
			if err := s.plugOne(each, rec, ifc); err != nil {
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

// onParent reports whether the interface is made on a host link: when it is our own, or
// when the network asks for a VLAN or VXLAN that another plugin is to use as its master.
func (ifc *Interface) onParent() bool {
	id, ok := ifc.Network.Link()
	return !ifc.Network.Delegates() || ok && !id.IsNIC()
}

// plugOne makes one interface.
func (s *Service) plugOne(ctx context.Context, rec *Record, ifc *Interface) error {
	b, err := s.backend(&ifc.Network)
	if err != nil {
		return err
	}
	if ifc.onParent() {
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
