// SPDX-License-Identifier: Apache-2.0

package netwatcher

import (
	"context"
	"fmt"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// Parent returns the name of the host link that the network's slaves go on: its
// NIC, or the VLAN or VXLAN link, which is made now when it is not there yet. The
// journal must have the Pod's record already, so that the link stays. Errors say
// what is missing on this node.
func (r *Reconciler) Parent(ctx context.Context, n *network.Network) (string, error) {
	id, ok := n.Link()
	if !ok {
		return "", noLinkError(n)
	}
	if name, ok := r.cachedLink(id, n.Ref); ok {
		return name, nil
	}
	name, err := r.ensureLink(ctx, id, n)
	if err != nil {
		return "", fmt.Errorf("network %s: %w", n.Ref, err)
	}
	return name, nil
}

// Check reports what keeps the network from a parent on this node, as Parent would,
// and makes nothing: no Pod's record keeps a link yet.
func (r *Reconciler) Check(ctx context.Context, n *network.Network) error {
	id, ok := n.Link()
	if !ok {
		return noLinkError(n)
	}
	if _, ok := r.cachedLink(id, n.Ref); ok {
		return nil
	}
	r.applyMu.Lock()
	defer r.applyMu.Unlock()
	in, err := r.newScope(ctx, n)
	if err == nil {
		err = in.rejection(id, n.Ref)
	}
	if err != nil {
		return fmt.Errorf("network %s: %w", n.Ref, err)
	}
	return nil
}

// noLinkError says what would give the network a parent.
func noLinkError(n *network.Network) error {
	if n.Ref.Kind == v1.KindTenantNetwork {
		return fmt.Errorf("network %s: %w: none was assigned from a TenantConfig: make the network anew, or ask for a ClusterNetwork", n.Ref, ErrNoLink)
	}
	if n.Type == v1.TypeSRIOV {
		return fmt.Errorf("network %s: %w: its devices come from device_pool", n.Ref, ErrNoLink)
	}
	return fmt.Errorf("network %s: %w: set spec.Options.host_device", n.Ref, ErrNoLink)
}

// cachedLink answers from the last round, which link events keep true.
func (r *Reconciler) cachedLink(id network.Link, ref network.Ref) (string, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if rides, ok := r.cache.linkByNetwork[ref]; !ok || rides != id {
		return "", false // new, changed or refused: a fresh look decides
	}
	name, ok := r.cache.ready[id]
	return name, ok
}

// ensureLink takes the steps that one link needs, not those of all others. A round
// that makes the same link meanwhile is no failure: the second look finds it.
func (r *Reconciler) ensureLink(ctx context.Context, id network.Link, n *network.Network) (string, error) {
	r.ensureMu.Lock()
	defer r.ensureMu.Unlock()
	if name, ok := r.cachedLink(id, n.Ref); ok {
		return name, nil // the Pod before this one waited for it too
	}
	defer r.Trigger() // a round reports what came of it
	name, err := r.tryEnsureLink(ctx, id, n)
	if err == nil || ctx.Err() != nil {
		return name, err
	}
	return r.tryEnsureLink(ctx, id, n)
}

func (r *Reconciler) tryEnsureLink(ctx context.Context, id network.Link, n *network.Network) (string, error) {
	r.applyMu.Lock() // a link that is about to go is not given out
	defer r.applyMu.Unlock()
	in, err := r.newScope(ctx, n)
	if err != nil {
		return "", err
	}
	if err := in.rejection(id, n.Ref); err != nil {
		return "", err
	}
	var mine []Change
	for _, c := range Diff(in.plan, in.state, in.inUse) {
		if c.Op == OpSetUp && c.Link.Device == n.Device || c.Op != OpSetUp && c.Link.Identity == id {
			mine = append(mine, c)
		}
	}
	if err := r.applyFirewall(ctx, in); err != nil {
		r.Log.Error(err, "A Pod gets a link that may not be guarded", "link", id.String()) // the round that follows reports it
	}
	failed := r.applyAll(ctx, mine, r.applyChange)
	if err := failed.takeTagFailures(); err != nil {
		r.Log.Error(err, "A Pod gets a link that passes VLAN tags", "link", id.String())
	}
	if err := failed.join(); err != nil {
		return "", err
	}
	if len(mine) > 0 {
		if in.state, err = r.Kernel.State(ctx); err != nil {
			return "", fmt.Errorf("read the host's links: %w", err)
		}
	}
	if err := r.applySourceGuard(ctx, in, true); err != nil {
		// SourceGuard does not permit the Pod, but where the kernel cannot guard.
		r.Log.Error(err, "A Pod asks for a link that may not be guarded", "link", id.String())
	}
	name, err := linkName(in, id, mine)
	if err != nil {
		return "", err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cache.ready != nil {
		r.cache.ready[id], r.cache.linkByNetwork[n.Ref] = name, id
	}
	return name, nil
}

// linkName is the name that the link has now.
func linkName(in *scope, id network.Link, taken []Change) (string, error) {
	if id.IsNIC() {
		return id.Device, nil
	}
	for _, c := range taken {
		if c.Op == OpCreate {
			return c.Link.Name, nil
		}
	}
	if f := in.state.link(id); f != nil {
		return f.Name, nil
	}
	return "", fmt.Errorf("%s: %w", id, ErrNetworkChanged)
}
