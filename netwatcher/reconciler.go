// SPDX-License-Identifier: Apache-2.0

package netwatcher

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/go-logr/logr"

	v1 "github.com/patchbay-cni/patchbay/api/v1"
	"github.com/patchbay-cni/patchbay/network"
)

// Config of a Reconciler; every field is needed.
type Config struct {
	// Node is this node's name.
	Node string
	// Version of the daemon, for the status.
	Version string
	// Kernel, Cluster and Pods are the world outside.
	Kernel  Kernel
	Cluster Cluster
	Pods    Pods
	// Log gets what changes and what fails.
	Log logr.Logger
}

// Reconciler keeps the host's links as the networks need them. It is safe for
// concurrent use.
type Reconciler struct {
	Config
	wake chan struct{}

	// apply serialises steps: between the look whether Pods use a link and its
	// removal, no Pod may get it.
	apply sync.Mutex
	// ensuring lets Pods that wait for the same link make it once.
	ensuring sync.Mutex

	mu     sync.Mutex // guards what follows
	view   view
	failed Failures
	wrote  *v1.NodeNetworkStatus
}

// New returns a Reconciler that does nothing before Run or Parent.
func New(c Config) *Reconciler {
	return &Reconciler{Config: c, wake: make(chan struct{}, 1), failed: Failures{}}
}

// Trigger asks for a round; it does not wait. To be called when a network or
// another node's NodeNetwork changed.
func (r *Reconciler) Trigger() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Reconcile makes one round: it reads, plans, changes and reports. All links are
// tried; the error joins those that failed.
func (r *Reconciler) Reconcile(ctx context.Context) error {
	in, err := r.read(ctx, nil)
	if err != nil {
		return err
	}
	changes := Diff(in.plan, in.state, in.used)
	failed := r.take(ctx, changes)
	if len(changes) > 0 {
		if in.state, err = r.Kernel.State(ctx); err != nil {
			return errors.Join(failed.join(), fmt.Errorf("read the host's links: %w", err))
		}
	}
	r.show(in, failed)
	return errors.Join(failed.join(), r.report(ctx, in))
}

// take takes the steps, and goes on after one that fails. A failed link's later
// steps are left out.
func (r *Reconciler) take(ctx context.Context, changes []Change) Failures {
	failed := Failures{}
	for _, c := range changes {
		if failed[c.Link.Identity] != nil && c.Op != Raise {
			continue
		}
		if err := r.step(ctx, c); err != nil {
			failed[c.Link.Identity] = err
		}
	}
	return failed
}

// join makes one error, in a stable order, or nil.
func (f Failures) join() error {
	var errs []error
	for _, err := range f {
		errs = append(errs, err)
	}
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(errs...)
}

// step takes one step, and looks again before it removes a link.
func (r *Reconciler) step(ctx context.Context, c Change) error {
	r.apply.Lock()
	defer r.apply.Unlock()
	if c.Op == Delete {
		links, err := r.Pods.Links()
		if err != nil {
			return fmt.Errorf("delete link %s: ask who uses it: %w", c.Link.Name, err)
		}
		if links[c.Link.Identity] {
			return nil // a Pod came first; the next round plans afresh
		}
	}
	if err := r.Kernel.Apply(ctx, c); err != nil {
		return fmt.Errorf("%s link %s: %w", c.Op, c.name(), err)
	}
	r.Log.Info("changed the host's links", "op", c.Op, "link", c.name(), "device", c.Link.Device,
		"add", c.Add, "drop", c.Drop)
	return nil
}

// report writes the status when it differs from what was written last.
func (r *Reconciler) report(ctx context.Context, in *input) error {
	r.mu.Lock()
	status := Status(in.plan, in.state, r.failed, r.Version)
	same := in.reported && r.wrote != nil && reflect.DeepEqual(*r.wrote, status)
	r.mu.Unlock()
	if same {
		return nil
	}
	if err := r.Cluster.WriteStatus(ctx, status); err != nil {
		return fmt.Errorf("write NodeNetwork %s: %w", r.Node, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wrote = &status
	return nil
}

// input is what one round works on.
type input struct {
	nets  []*network.Network
	plan  *Plan
	state *State
	used  Used
	// reported is false when this node's object is known to be missing.
	reported bool
}

// read collects it; extra is a network that the cluster's cache may not have yet.
func (r *Reconciler) read(ctx context.Context, extra *network.Network) (*input, error) {
	nets, err := r.Cluster.Networks(ctx)
	if err != nil {
		return nil, fmt.Errorf("list networks: %w", err)
	}
	nets = with(nets, extra)
	links, err := r.Pods.Links()
	if err != nil {
		return nil, fmt.Errorf("list links that Pods use: %w", err)
	}
	state, err := r.Kernel.State(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the host's links: %w", err)
	}
	in := &input{nets: nets, state: state, used: func(id network.Link) bool { return links[id] }, reported: true}
	var peers VTEPs
	if nodes, err := r.Cluster.NodeNetworks(ctx); err == nil {
		peers = PeerVTEPs(nodes, r.Node)
		in.reported = slices.ContainsFunc(nodes, func(n v1.NodeNetwork) bool { return n.Name == r.Node })
	} else {
		r.Log.Info("other nodes are not known; forwarding entries stay", "error", err)
	}
	in.plan = Desired(nets, state, peers)
	return in, nil
}

// with adds a network that is not among nets, or is newer than there.
func with(nets []*network.Network, extra *network.Network) []*network.Network {
	if extra == nil {
		return nets
	}
	all := []*network.Network{extra}
	for _, n := range nets {
		switch {
		case n.UID != extra.UID:
			all = append(all, n)
		case n.Generation > extra.Generation:
			all[0] = n
		}
	}
	return all
}
