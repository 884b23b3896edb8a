// SPDX-License-Identifier: Apache-2.0

package netwatcher

import (
	"context"
	"fmt"
	"net"
)

// SourceGuard drops what Pods send into a network with the MAC or address of another.
type SourceGuard interface {
	// Apply guards these links and no others, and reports whether something had to change.
	// The honest frames of Pods that are on a link always pass. The error wraps
	// ErrNoSourceGuard when the kernel cannot.
	Apply(ctx context.Context, links []GuardedLink) (changed bool, err error)
}

// GuardedLink is a link whose Pods send from their own addresses only.
type GuardedLink struct {
	// Name of the link.
	Name string
	// MAC of the link, which its IPVLAN slaves share.
	MAC net.HardwareAddr
	// Keep says that it is guarded only if it is already.
	Keep bool
}

// guardSources guards the links whose networks all want it. Unless the plan is of all
// networks as they are now, links that it does not guard stay as they are.
func (r *Reconciler) guardSources(ctx context.Context, in *input, current bool) error {
	changed, err := r.Sources.Apply(ctx, in.guarded(current))
	if err != nil {
		return fmt.Errorf("%w: %w", errSourcesPass, err)
	}
	if changed {
		r.Log.Info("Changed the source guard")
	}
	return nil
}

// guarded are the links of ours that are there, and what becomes of them.
func (in *input) guarded(current bool) []GuardedLink {
	var links []GuardedLink
	for i := range in.state.Links {
		f := &in.state.Links[i]
		if !f.Ours || f.HalfMade {
			continue
		}
		w := in.plan.link(f.Identity)
		wanted := w != nil && w.Guarded
		// A link that no network needs has Pods on it: theirs may have been refused since.
		if wanted || w == nil || !current || in.partly {
			links = append(links, GuardedLink{Name: f.Name, MAC: f.MAC, Keep: !wanted})
		}
	}
	return links
}
