// SPDX-License-Identifier: Apache-2.0

package netwatcher

import (
	"context"
	"fmt"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// Parent returns the name of the host link for the network's slaves: its NIC, or its VLAN or
// VXLAN link, which it creates if it is missing. The journal must have the Pod's record
// already, so that the link is not deleted. Errors name what is missing on this node.
func (r *Reconciler) Parent(ctx context.Context, n *network.Network) (string, error) {
	id, ok := n.Link()
	if !ok {
		return "", noLinkError(n)
	}
	if name, ok := r.cache.lookup(id, n.Ref); ok {
		return name, nil
	}
	name, err := r.ensureLink(ctx, id, n)
	if err != nil {
		return "", fmt.Errorf("network %s: %w", n.Ref, err)
	}
	return name, nil
}

// Check returns the error that Parent would return because of the network or the node. It
// creates no link, so the Pod needs no record.
func (r *Reconciler) Check(ctx context.Context, n *network.Network) error {
	id, ok := n.Link()
	if !ok {
		return noLinkError(n)
	}
	if _, ok := r.cache.lookup(id, n.Ref); ok {
		return nil
	}
	err := r.applier.do(func(*lockedApplier) error {
		s, err := newScope(ctx, &r.Config, n)
		if err != nil {
			return err
		}
		return s.rejection(id, n.Ref)
	})
	if err != nil {
		return fmt.Errorf("network %s: %w", n.Ref, err)
	}
	return nil
}

// noLinkError explains how to give the network a parent.
func noLinkError(n *network.Network) error {
	if n.Ref.Kind == v1.KindTenantNetwork {
		return fmt.Errorf("network %s: %w: none was assigned from a TenantConfig: create the network again, or use a ClusterNetwork", n.Ref, errNoLink)
	}
	if n.UsesDevicePool() {
		return fmt.Errorf("network %s: %w: its devices come from device_pool", n.Ref, errNoLink)
	}
	return fmt.Errorf("network %s: %w: set spec.Options.host_device", n.Ref, errNoLink)
}

// ensureLink applies the changes that one link needs, and none of other links. A reconciliation
// can create the link meanwhile: the second attempt finds it.
func (r *Reconciler) ensureLink(ctx context.Context, id network.Link, n *network.Network) (string, error) {
	r.ensureMu.Lock()
	defer r.ensureMu.Unlock()
	if name, ok := r.cache.lookup(id, n.Ref); ok {
		return name, nil // another Pod waited for it, too
	}
	defer r.Trigger() // a reconciliation reports the outcome
	name, err := r.tryEnsureLink(ctx, id, n)
	if err == nil || ctx.Err() != nil {
		return name, err
	}
	return r.tryEnsureLink(ctx, id, n)
}

func (r *Reconciler) tryEnsureLink(ctx context.Context, id network.Link, n *network.Network) (name string, err error) {
	err = r.applier.do(func(l *lockedApplier) error {
		s, err := newScope(ctx, &r.Config, n)
		if err != nil {
			return err
		}
		if err := s.rejection(id, n.Ref); err != nil {
			return err
		}
		changes := changesOf(s, id, n.Device)
		if err := r.applyForPod(ctx, l, s, id, changes); err != nil {
			return err
		}
		if name, err = linkName(s, id, changes); err != nil {
			return err
		}
		r.cache.add(id, n.Ref, name)
		return nil
	})
	return name, err
}

// changesOf are the changes of one link and of its NIC.
func changesOf(s *scope, id network.Link, device string) []Change {
	var changes []Change
	for _, c := range Diff(s.plan, s.state, s.inUse) {
		if c.Op == OpSetUp && c.Link.Device == device || c.Op != OpSetUp && c.Link.Identity == id {
			changes = append(changes, c)
		}
	}
	return changes
}

// applyForPod applies the changes of a link, and the packet filters. A filter that fails does not
// keep the link from the Pod: the reconciliation that follows reports it.
func (r *Reconciler) applyForPod(ctx context.Context, l *lockedApplier, s *scope, id network.Link, changes []Change) (err error) {
	if err := l.applyFirewall(ctx, s); err != nil {
		r.Log.Error(err, "Failed to filter VXLAN packets of a Pod's link", "link", id.String())
	}
	failed := applyChanges(changes, func(c Change) error { return l.applyChange(ctx, c) })
	if err := failed.takeTagFailures(); err != nil {
		r.Log.Error(err, "Failed to filter VLAN tags of a Pod's link", "link", id.String())
	}
	if err := failed.join(); err != nil {
		return err
	}
	if len(changes) > 0 {
		if s.state, err = l.readState(ctx); err != nil {
			return err
		}
	}
	if err := l.applySourceGuard(ctx, s, true); err != nil {
		// SourceGuard.Permit rejects the Pod, unless the kernel cannot guard.
		r.Log.Error(err, "Failed to guard a Pod's link", "link", id.String())
	}
	return nil
}

// linkName is the link's present name, after the changes.
func linkName(s *scope, id network.Link, changes []Change) (string, error) {
	if id.IsNIC() {
		return id.Device, nil
	}
	for _, c := range changes {
		if c.Op == OpCreate {
			return c.Link.Name, nil
		}
	}
	if f := s.state.link(id); f != nil {
		return f.Name, nil
	}
	return "", fmt.Errorf("%s: %w", id, errNetworkChanged)
}
