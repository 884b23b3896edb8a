// SPDX-License-Identifier: Apache-2.0

package netwatcher

import (
	"context"
	"fmt"
	"sync"

	"github.com/patchbay-cni/patchbay/internal/network"
)

// applier applies changes and packet filters to the node, one at a time: between the check whether
// Pods use a link and its deletion, no Pod may get it.
type applier struct {
	mu     sync.Mutex
	locked lockedApplier
}

// do calls fn with the lock held.
func (a *applier) do(fn func(*lockedApplier) error) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return fn(&a.locked)
}

// readAndFilter reads the scope and applies its packet filters under one lock: a filter that was
// computed before a Pod's link was created must not replace the filter that the link needs.
func (a *applier) readAndFilter(ctx context.Context) (s *scope, open *isolationErrors, err error) {
	err = a.do(func(l *lockedApplier) error {
		if s, err = newScope(ctx, l.Config, nil); err != nil {
			return err
		}
		open = &isolationErrors{vxlanFilter: l.applyFirewall(ctx, s), sourceGuard: l.applySourceGuard(ctx, s, true)}
		return nil
	})
	return s, open, err
}

// refresh reads the links again and guards those that were created. The lock keeps out a Pod that
// gets a link meanwhile, whose network the plan may not have.
func (a *applier) refresh(ctx context.Context, s *scope, open *isolationErrors) error {
	return a.do(func(l *lockedApplier) (err error) {
		if s.state, err = l.readState(ctx); err != nil {
			return err
		}
		open.sourceGuard = l.applySourceGuard(ctx, s, false)
		return nil
	})
}

// applyChange is lockedApplier.applyChange with the lock.
func (a *applier) applyChange(ctx context.Context, c Change) error {
	return a.do(func(l *lockedApplier) error { return l.applyChange(ctx, c) })
}

// applyChanges calls apply for each change. It continues after a failure, without the failed
// link's later changes.
func applyChanges(changes []Change, apply func(Change) error) linkFailures {
	failed := linkFailures{}
	for _, c := range changes {
		id := c.identity()
		if failed[id] != nil {
			continue
		}
		if err := apply(c); err != nil {
			failed[id] = err
		}
	}
	return failed
}

// lockedApplier has the operations for which the caller holds the applier's lock.
type lockedApplier struct {
	*Config
	// trigger asks for another reconciliation.
	trigger func()
	// dropReady is called before a link is deleted: no Pod gets it from the cache.
	dropReady func(network.Link)
}

func (l *lockedApplier) readState(ctx context.Context) (*State, error) {
	state, err := l.Kernel.State(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the host's links: %w", err)
	}
	return state, nil
}

// applyFirewall applies the VXLAN filter. Call it before a link is created, so that no VXLAN is
// unfiltered at any time.
func (l *lockedApplier) applyFirewall(ctx context.Context, s *scope) error {
	changed, err := l.Firewall.Apply(ctx, s.filter)
	if err != nil {
		return fmt.Errorf("filter VXLAN packets: %w", err)
	}
	if changed {
		l.Log.Info("Wrote the packet filter", "vxlans", len(s.filter.VNIs), "vteps", len(s.filter.VTEPs))
		l.trigger() // the next one flushes what links learned before the filter was written
	}
	return nil
}

// applySourceGuard guards the links whose networks all request it. Unless the plan is of all
// networks and the links are those that it was computed for (current), links that it does not
// guard stay as they are.
func (l *lockedApplier) applySourceGuard(ctx context.Context, s *scope, current bool) error {
	changed, err := l.SourceGuard.Apply(ctx, s.guardedLinks(current))
	if err != nil {
		return fmt.Errorf("%w: %w", errSourcesNotGuarded, err)
	}
	if changed {
		l.Log.Info("Changed the source guard")
	}
	return nil
}

// applyChange applies one change. It checks again that no Pod uses a link before it deletes it: a
// Pod that got the link has its record by then, and a later Pod waits for the lock. It deletes an
// unfinished link without this check: no Pod is on it, even if a Pod's record has it.
func (l *lockedApplier) applyChange(ctx context.Context, c Change) error {
	if c.Op == OpDelete && !c.OnlyUnfinished {
		l.dropReady(c.Link.Identity)
		used, err := l.Pods.Links()
		if err != nil {
			return fmt.Errorf("delete link %s: list links that Pods use: %w", c.Link.Name, err)
		}
		if used[c.Link.Identity] {
			return nil // the next reconciliation plans with the Pod
		}
	}
	err := l.Kernel.Apply(ctx, c)
	if l.Observer != nil {
		l.Observer.ObserveStep(c.Op, err)
	}
	if err != nil && c.Op == OpFilterTags {
		return fmt.Errorf("%w on %s: %w", errTagsNotFiltered, c.linkName(), err)
	}
	if err != nil {
		return fmt.Errorf("%s link %s: %w", c.Op, c.linkName(), err)
	}
	l.Log.Info("Changed a host link", "op", c.Op, "link", c.linkName(), "device", c.Link.Device,
		"add", c.Add, "drop", c.Drop)
	return nil
}
