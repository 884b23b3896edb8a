// SPDX-License-Identifier: Apache-2.0

package netwatcher

import (
	"context"
	"fmt"

	"github.com/patchbay-cni/patchbay/network"
)

// Parent returns the name of the host link that the network's slaves go on: its
// NIC, or the VLAN or VXLAN link, which is made now when it is not there yet. The
// journal must have the Pod's record already, so that the link stays. Errors say
// what is missing on this node.
func (r *Reconciler) Parent(ctx context.Context, n *network.Network) (string, error) {
	id, ok := n.Link()
	if !ok {
		return "", fmt.Errorf("network %s: %w", n.Ref, ErrNoLink)
	}
	if name, ok := r.ready(id, n.Ref); ok {
		return name, nil
	}
	name, err := r.ensure(ctx, id, n)
	if err != nil {
		return "", fmt.Errorf("network %s: %w", n.Ref, err)
	}
	return name, nil
}

// ready answers from the last round, which link events keep true.
func (r *Reconciler) ready(id network.Link, ref network.Ref) (string, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.view.refused[ref] != nil {
		return "", false // ask again: the reason may be gone
	}
	name, ok := r.view.ready[id]
	return name, ok
}

// ensure takes the steps that one link needs, not those of all others.
func (r *Reconciler) ensure(ctx context.Context, id network.Link, n *network.Network) (string, error) {
	in, err := r.read(ctx, n)
	if err != nil {
		return "", err
	}
	if err := in.plan.Refused[n.Ref]; err != nil {
		return "", err
	}
	if w := in.plan.link(id); w != nil && w.Err != nil {
		return "", w.Err
	}
	var mine []Change
	for _, c := range Diff(in.plan, in.state, in.used) {
		if c.Op == Raise && c.Link.Device == n.Device || c.Op != Raise && c.Link.Identity == id {
			mine = append(mine, c)
		}
	}
	if err := r.take(ctx, in, mine); err != nil {
		return "", err
	}
	r.Trigger() // the round reports
	if id.IsNIC() {
		return n.Device, nil
	}
	if in.state, err = r.reread(ctx, nil); err != nil {
		return "", err
	}
	f := in.state.link(id)
	if f == nil {
		return "", fmt.Errorf("link %s was removed while a Pod was to get it", id)
	}
	return f.Name, nil
}
