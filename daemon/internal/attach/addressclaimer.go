// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"

	"github.com/patchbay-cni/patchbay/internal/network"
)

// addressClaimer claims the addresses of a sandbox's interfaces, and checks that no other machine
// uses them.
type addressClaimer struct {
	addresses Addresses
	hostLinks HostLinks
	prober    Prober
	kube      KubeClient
	owners    AddressOwners // or nil
}

// claim claims the addresses of all interfaces. On error it gives back what it has claimed. It
// claims static addresses first: one that is taken may stay taken, and the Pod must not use up
// dynamic addresses with each retry.
func (c *addressClaimer) claim(ctx context.Context, pod *corev1.Pod, rec *Record, requested []requestedInterface) error {
	claimed := make([]bool, len(requested))
	err := c.claimSelected(ctx, rec, requested, claimed, (*Interface).hasStaticAddress)
	if err == nil {
		err = c.claimSelected(ctx, rec, requested, claimed, func(ifc *Interface) bool { return !ifc.hasStaticAddress() })
	}
	if err == nil {
		err = c.probe(ctx, pod, rec, claimed)
	}
	if err == nil {
		return nil
	}
	for i := range slices.Backward(rec.Interfaces) {
		if claimed[i] {
			c.discard(&rec.Interfaces[i])
		}
	}
	return err
}

// claimSelected claims the addresses of the selected interfaces in parallel, and sets claimed for
// each interface that has its addresses.
func (c *addressClaimer) claimSelected(ctx context.Context, rec *Record, requested []requestedInterface, claimed []bool, selected func(*Interface) bool) error {
	group, groupCtx := errgroup.WithContext(ctx)
	for i := range rec.Interfaces {
		if !selected(&rec.Interfaces[i]) || rec.Interfaces[i].Network.IsNodeConfiguration() {
			continue
		}
		group.Go(func() error {
			ifc := &rec.Interfaces[i]
			v4, v6 := requested[i].addressRequests()
			a4, a6, err := c.addresses.Claim(groupCtx, &ifc.Network, v4, v6)
			if err != nil {
				return withNetwork(ifc.Network.Ref, fmt.Errorf("interface %s: %w", ifc.Name, c.withOwner(groupCtx, rec, &ifc.Network, err)))
			}
			claimed[i] = true
			ifc.V4, ifc.V6 = withSubnetLength(ifc.Network.V4, a4), withSubnetLength(ifc.Network.V6, a6)
			if err := ifc.checkGateways(); err != nil {
				return withNetwork(ifc.Network.Ref, fmt.Errorf("interface %s: %w", ifc.Name, err))
			}
			return nil
		})
	}
	return group.Wait()
}

// ownerTimeout bounds the search for the Pod that has an address: it serves only the error's text.
const ownerTimeout = 2 * time.Second

// withOwner returns the error of a claim. It names the Pod that has the static address if that Pod is
// of the same namespace: tenants must not learn the names of others.
func (c *addressClaimer) withOwner(ctx context.Context, rec *Record, n *network.Network, err error) error {
	taken, ok := errors.AsType[*AddressTakenError](err)
	if !ok || c.owners == nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, ownerTimeout)
	defer cancel()
	pod, findErr := c.owners.PodWithAddress(ctx, rec.PodNamespace, n.Ref, taken.Addr)
	if findErr != nil {
		return err // it says how to find the Pod
	}
	fault := fmt.Sprintf("no known Pod of namespace %s has it: request another address, or ask a netadmin, who finds the Pod with `kubectl get danmeps -A -o wide | grep -w %v`",
		rec.PodNamespace, taken.Addr)
	switch {
	case pod == rec.PodName:
		fault = "an earlier Pod of this name has it: wait until its node releases it, or delete the Node if it is powered off for good"
	case pod != "":
		fault = fmt.Sprintf("Pod %s/%s has it: delete that Pod, or request another address", rec.PodNamespace, pod)
	case n.Ref.Namespace != "":
		fault = fmt.Sprintf("no known Pod of namespace %s has it: wait until it is released, or request another address", rec.PodNamespace)
	}
	return &causedError{cause: err, err: fmt.Errorf("network %s: static address %v must be free, but %s", n.Ref, taken.Addr, fault)}
}

// withSubnetLength returns the address with the prefix length of its subnet, and the zero value
// without an address.
func withSubnetLength(subnet *network.Subnet, a netip.Addr) netip.Prefix {
	if subnet == nil || !a.IsValid() {
		return netip.Prefix{}
	}
	return netip.PrefixFrom(a, subnet.CIDR.Bits())
}

// maxProbeAttempts is how many dynamic addresses of an interface one ADD probes.
const maxProbeAttempts = 3

// probe checks the claimed addresses of networks with ConflictProbe in parallel, before anything
// uses them (RFC 5227). A dynamic address that another machine uses goes into quarantine, and probe
// claims another one. A static one fails the ADD. probe clears claimed for an interface that has
// lost all its addresses.
func (c *addressClaimer) probe(ctx context.Context, pod *corev1.Pod, rec *Record, claimed []bool) error {
	group, groupCtx := errgroup.WithContext(ctx)
	for i := range rec.Interfaces {
		ifc := &rec.Interfaces[i]
		if !ifc.Network.ConflictProbe || len(ifc.addressSlots()) == 0 {
			continue
		}
		group.Go(func() error {
			err := c.probeInterface(groupCtx, pod, ifc)
			claimed[i] = len(ifc.addressSlots()) > 0
			if err != nil {
				return withNetwork(ifc.Network.Ref, fmt.Errorf("interface %s: %w", ifc.Name, err))
			}
			return nil
		})
	}
	return group.Wait()
}

// probeInterface probes the addresses of one interface, and those that replace them.
func (c *addressClaimer) probeInterface(ctx context.Context, pod *corev1.Pod, ifc *Interface) error {
	parent, err := c.hostLinks.Parent(ctx, &ifc.Network)
	if err != nil {
		return fmt.Errorf("network %s: %w", ifc.Network.Ref, err)
	}
	for attempt, slots := 1, ifc.addressSlots(); ; attempt++ {
		addrs := make([]netip.Addr, len(slots))
		for i, s := range slots {
			addrs[i] = s.address.Addr()
		}
		macs, err := c.prober.Probe(ctx, parent, addrs)
		if err != nil {
			return fmt.Errorf("network %s: %w", ifc.Network.Ref, err)
		}
		slots = slices.DeleteFunc(slots, func(s addressSlot) bool { return macs[s.address.Addr()] == nil })
		if len(slots) == 0 {
			return nil
		}
		if err := c.quarantineConflicts(pod, ifc, slots, macs); err != nil {
			return err
		}
		if attempt == maxProbeAttempts {
			return fmt.Errorf("%w: %w: network %s: other machines have %d addresses in a row: keep theirs out of allocation_pool and allocation_pool_v6 of spec.Options",
				ErrTryAgain, ErrConflict, ifc.Network.Ref, maxProbeAttempts)
		}
		if err := c.claimReplacements(ctx, ifc, slots); err != nil {
			return err
		}
	}
}

// quarantineConflicts puts the addresses that other machines use into quarantine, and reports each
// conflict. It fails for a static address, and then leaves the address of the other family.
func (c *addressClaimer) quarantineConflicts(pod *corev1.Pod, ifc *Interface, slots []addressSlot, macs map[netip.Addr]net.HardwareAddr) error {
	conflict := func(s addressSlot) error {
		a := s.address.Addr()
		return fmt.Errorf("%w: network %s: another machine, MAC %s, has %v, which was claimed for Pod %s/%s",
			ErrConflict, ifc.Network.Ref, macs[a], a, pod.Namespace, pod.Name)
	}
	if i := slices.IndexFunc(slots, func(s addressSlot) bool { return s.static }); i >= 0 {
		err := fmt.Errorf("%w: remove it from that machine, or request another address", conflict(slots[i]))
		c.kube.ReportConflict(nil, &ifc.Network, err) // the failed ADD reports it on the Pod
		return err
	}
	for _, s := range slots {
		err := conflict(s)
		quarantined := c.addresses.Quarantine(&ifc.Network, s.address.Addr())
		*s.address = netip.Prefix{}
		if !quarantined {
			err = fmt.Errorf("%w; too many addresses are in quarantine: find that machine, which may answer for any address", err)
			c.kube.ReportConflict(nil, &ifc.Network, err)
			return fmt.Errorf("%w: %w", ErrTryAgain, err)
		}
		c.kube.ReportConflict(pod, &ifc.Network, fmt.Errorf("%w: no Pod gets it for an hour", err))
	}
	return nil
}

// claimReplacements claims a dynamic address for each of the slots.
func (c *addressClaimer) claimReplacements(ctx context.Context, ifc *Interface, slots []addressSlot) error {
	request := func(address *netip.Prefix) AddressRequest {
		return AddressRequest{Dynamic: slices.ContainsFunc(slots, func(s addressSlot) bool { return s.address == address })}
	}
	v4, v6 := request(&ifc.V4), request(&ifc.V6)
	a4, a6, err := c.addresses.Claim(ctx, &ifc.Network, v4, v6)
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

// discard gives back the addresses of an interface that was not attached.
func (c *addressClaimer) discard(ifc *Interface) {
	c.addresses.Discard(&ifc.Network, ifc.V4.Addr(), ifc.V6.Addr())
}
