// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
)

// probeTries is how many dynamic addresses of an interface one ADD tries.
const probeTries = 3

// probe asks the networks that want it whether something else has the addresses that
// were claimed, before anything uses them, all interfaces side by side. A dynamic
// address that is in use goes into quarantine and another is claimed; a static one fails
// the ADD. An interface that has lost its addresses has nothing claimed any more.
func (s *Service) probe(ctx context.Context, pod *corev1.Pod, rec *Record, claimed []bool) error {
	group, each := errgroup.WithContext(ctx)
	for i := range rec.Interfaces {
		ifc := &rec.Interfaces[i]
		if !ifc.Network.ConflictProbe || len(ifc.addressed()) == 0 {
			continue
		}
		group.Go(func() error {
			err := s.probeOne(each, pod, ifc)
			claimed[i] = len(ifc.addressed()) > 0
			if err != nil {
				return fmt.Errorf("interface %s: %w", ifc.Name, err)
			}
			return nil
		})
	}
	return group.Wait()
}

// side is one family of an interface.
type side struct {
	address *netip.Prefix
	static  bool
}

// addressed are the families in which the interface has an address.
func (ifc *Interface) addressed() []side {
	both := []side{{&ifc.V4, ifc.StaticV4}, {&ifc.V6, ifc.StaticV6}}
	return slices.DeleteFunc(both, func(x side) bool { return !x.address.IsValid() })
}

// probeOne asks for the addresses of one interface, and for those that take their place.
func (s *Service) probeOne(ctx context.Context, pod *corev1.Pod, ifc *Interface) error {
	parent, err := s.HostLinks.Parent(ctx, &ifc.Network)
	if err != nil {
		return fmt.Errorf("network %s: %w", ifc.Network.Ref, err)
	}
	for try, sides := 1, ifc.addressed(); ; try++ {
		addrs := make([]netip.Addr, len(sides))
		for i, x := range sides {
			addrs[i] = x.address.Addr()
		}
		macs, err := s.Prober.Probe(ctx, parent, addrs)
		if err != nil {
			return fmt.Errorf("network %s: %w", ifc.Network.Ref, err)
		}
		sides = slices.DeleteFunc(sides, func(x side) bool { return macs[x.address.Addr()] == nil })
		if len(sides) == 0 {
			return nil
		}
		if err := s.dismiss(pod, ifc, sides, macs); err != nil {
			return err
		}
		if try == probeTries {
			return fmt.Errorf("%w: %w: network %s: other machines have %d addresses in a row: keep theirs out of allocation_pool and allocation_pool_v6 of spec.Options",
				ErrTryAgain, ErrConflict, ifc.Network.Ref, probeTries)
		}
		if err := s.replace(ctx, ifc, sides); err != nil {
			return err
		}
	}
}

// dismiss puts the addresses into quarantine that other machines have, and reports each.
// A static one fails, and takes nothing from the other family.
func (s *Service) dismiss(pod *corev1.Pod, ifc *Interface, sides []side, macs map[netip.Addr]net.HardwareAddr) error {
	conflict := func(x side) error {
		a := x.address.Addr()
		return fmt.Errorf("%w: network %s: another machine, MAC %s, has %v, which Pod %s/%s was to get",
			ErrConflict, ifc.Network.Ref, macs[a], a, pod.Namespace, pod.Name)
	}
	if i := slices.IndexFunc(sides, func(x side) bool { return x.static }); i >= 0 {
		err := fmt.Errorf("%w: remove it from that machine, or ask for another address", conflict(sides[i]))
		s.Cluster.Conflict(nil, &ifc.Network, err) // the Pod is refused with it
		return err
	}
	for _, x := range sides {
		err := conflict(x)
		kept := s.Addresses.Quarantine(&ifc.Network, x.address.Addr())
		*x.address = netip.Prefix{}
		if !kept {
			err = fmt.Errorf("%w; too many addresses are in quarantine already: look for that machine, which may answer for any address", err)
			s.Cluster.Conflict(nil, &ifc.Network, err)
			return fmt.Errorf("%w: %w", ErrTryAgain, err)
		}
		s.Cluster.Conflict(pod, &ifc.Network, fmt.Errorf("%w: no Pod gets it for an hour", err))
	}
	return nil
}

// replace claims other dynamic addresses for those that were dismissed.
func (s *Service) replace(ctx context.Context, ifc *Interface, sides []side) error {
	of := func(place *netip.Prefix) Want {
		return Want{Dynamic: slices.ContainsFunc(sides, func(x side) bool { return x.address == place })}
	}
	v4, v6 := of(&ifc.V4), of(&ifc.V6)
	a4, a6, err := s.Addresses.Claim(ctx, &ifc.Network, v4, v6)
	if err != nil {
		return err
	}
	if v4.Dynamic {
		ifc.V4 = within(ifc.Network.V4, a4)
	}
	if v6.Dynamic {
		ifc.V6 = within(ifc.Network.V6, a6)
	}
	return ifc.checkGateways()
}
