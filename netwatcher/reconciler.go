// SPDX-License-Identifier: Apache-2.0

package netwatcher

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"

	v1 "github.com/patchbay-cni/patchbay/api/v1"
	"github.com/patchbay-cni/patchbay/network"
)

// Config of a Reconciler; every field but Observer is needed.
type Config struct {
	// Node is this node's name.
	Node string
	// Version of the daemon and KernelVersion of the node, for the status.
	Version, KernelVersion string
	// Kernel, Firewall, Sources, Cluster and Pods are the world outside.
	Kernel   Kernel
	Firewall Firewall
	Sources  SourceGuard
	Cluster  Cluster
	Pods     Pods
	// Ranges are where VTEPs may be; on NICs without, in this node's subnets.
	Ranges Ranges
	// Log gets what changes and what fails.
	Log logr.Logger
	// Observer may be nil.
	Observer Observer
}

// Reconciler keeps the host's links as the networks need them. It is safe for
// concurrent use.
type Reconciler struct {
	Config
	wake chan struct{}

	// apply serialises steps and packet filters: between the look whether Pods use a
	// link and its removal, no Pod may get it.
	apply sync.Mutex
	// ensuring lets Pods that wait for the same link make it once.
	ensuring sync.Mutex

	mu   sync.Mutex // guards what follows
	view view
	// heard are the links that changed since the round's last look at them.
	heard  map[string]bool
	failed Failures
	wrote  written
	// refused are the VTEPs that the last round left out.
	refused VTEPs
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

const (
	// settle gathers what comes in one go, such as a list of networks.
	settle = 50 * time.Millisecond
	// resync is the round that nothing asked for.
	resync = time.Minute
	// firstRetry doubles up to resync.
	firstRetry = time.Second
)

// Run makes rounds until ctx ends: at once, when something changes, after
// failures with growing pauses, and now and then.
func (r *Reconciler) Run(ctx context.Context) error {
	go r.watch(ctx)
	retry := firstRetry
	for {
		pause := resync
		if err := r.Reconcile(ctx); err != nil && ctx.Err() == nil {
			r.Log.Error(err, "host links are not as they should be", "retry", retry)
			pause, retry = retry, min(2*retry, resync)
		} else {
			retry = firstRetry
		}
		if !r.wait(ctx, pause) {
			return nil
		}
	}
}

// watch listens to the kernel, again and again.
func (r *Reconciler) watch(ctx context.Context) {
	for ctx.Err() == nil {
		if err := r.Kernel.Watch(ctx, r.changed); err != nil && ctx.Err() == nil {
			r.Log.Error(err, "link events are lost until they are watched again")
		}
		r.changed("") // whatever happened meanwhile
		sleep(ctx, firstRetry)
	}
}

// wait returns false when ctx ended.
func (r *Reconciler) wait(ctx context.Context, pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	case <-r.wake:
	}
	sleep(ctx, settle)
	select { // what came while it settled is seen by the coming round
	case <-r.wake:
	default:
	}
	return ctx.Err() == nil
}

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// Reconcile makes one round: it reads, plans, changes and reports. All links are
// tried; the error joins those that failed.
func (r *Reconciler) Reconcile(ctx context.Context) (err error) {
	start := time.Now()
	var status *v1.NodeNetworkStatus
	if r.Observer != nil {
		defer func() { r.Observer.Round(time.Since(start), err, status) }()
	}
	r.listen()
	in, open, err := r.readAndGuard(ctx)
	if err != nil {
		return err
	}
	changes := Diff(in.plan, in.state, in.used)
	failed := r.take(ctx, changes, r.lockedStep)
	if len(changes) > 0 {
		r.listen()
		if err := r.lookAgain(ctx, in, open); err != nil {
			return errors.Join(failed.join(), err)
		}
		in.settled(failed)
	}
	open.tagged = failed.tagged()
	r.show(in, failed)
	r.logRefused(in.refused)
	now := Status(in.plan, in.state, failed)
	now.Conditions = append(now.Conditions, in.filter.isolated(open), in.plan.vtepsAccepted(in.refused))
	now.Version, now.KernelVersion = r.Version, r.KernelVersion
	status = &now
	return errors.Join(failed.join(), open.curable(), r.report(ctx, in.reported, status, changes))
}

// readAndGuard holds the lock for both: a filter from before a Pod's link was made must not
// replace the one that the link was made behind.
func (r *Reconciler) readAndGuard(ctx context.Context) (in *input, open *openings, err error) {
	r.apply.Lock()
	defer r.apply.Unlock()
	if in, err = r.read(ctx, nil); err != nil {
		return nil, nil, err
	}
	return in, &openings{vxlans: r.guard(ctx, in), sources: r.guardSources(ctx, in, true)}, nil
}

// lookAgain reads the links after the steps, and guards those that were made. The lock keeps
// out a Pod that is given a link meanwhile, and with it a network that the plan may not have.
func (r *Reconciler) lookAgain(ctx context.Context, in *input, open *openings) (err error) {
	r.apply.Lock()
	defer r.apply.Unlock()
	if in.state, err = r.Kernel.State(ctx); err != nil {
		return fmt.Errorf("read the host's links: %w", err)
	}
	open.sources = r.guardSources(ctx, in, false)
	return nil
}

// logRefused names VTEPs that do not count, when they are others than before.
func (r *Reconciler) logRefused(refused VTEPs) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(refused) > 0 && !maps.EqualFunc(refused, r.refused, slices.Equal) {
		r.Log.Info("VXLANs leave VTEPs out that are neither in this node's subnets nor in --vtep-ranges", "vteps", refused)
	}
	r.refused = refused
}

// lockedStep is step for who has no lock.
func (r *Reconciler) lockedStep(ctx context.Context, c Change) error {
	r.apply.Lock()
	defer r.apply.Unlock()
	return r.step(ctx, c)
}

// read collects it; extra is a network that the cluster's cache may not have yet.
func (r *Reconciler) read(ctx context.Context, extra *network.Network) (*input, error) {
	nets, err := r.Cluster.Networks(ctx)
	partly := errors.Is(err, ErrIncomplete)
	if err != nil && !partly {
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
	in := &input{nets: nets, state: state, used: r.used(ctx, links), reported: true, partly: partly}
	var peers VTEPs
	if nodes, err := r.Cluster.NodeNetworks(ctx); err == nil {
		peers, in.refused = PeerVTEPs(nodes, r.Node).accepted(state, r.Ranges)
		in.reported = slices.ContainsFunc(nodes, func(n v1.NodeNetwork) bool { return n.Name == r.Node })
	} else {
		r.Log.Info("other nodes are not known; forwarding entries stay", "error", err)
	}
	in.plan = Desired(nets, state, peers)
	in.filter = in.plan.filter(state, peers)
	if partly {
		in.spare()
	}
	return in, nil
}

// used tells links that Pods of the journal or anything else is on. The kernel is
// asked at most once, and only when there is a link to remove or to make narrower:
// that is a look into every namespace. If it does not answer, all are in use.
func (r *Reconciler) used(ctx context.Context, byPods map[network.Link]bool) Used {
	slaves := sync.OnceValues(func() (map[string]bool, error) {
		on, err := r.Kernel.Slaves(ctx)
		if err != nil {
			r.Log.Error(err, "what is on the host's links is not known: none is removed")
		}
		return on, err
	})
	return func(f *Found) bool {
		if byPods[f.Identity] || f.Identity.IsNIC() {
			return byPods[f.Identity]
		}
		on, err := slaves()
		return err != nil || on[f.Name]
	}
}

// guard sets the packet filter before a link is made: no VXLAN is open for a moment.
func (r *Reconciler) guard(ctx context.Context, in *input) error {
	changed, err := r.Firewall.Apply(ctx, in.filter)
	if err != nil {
		return fmt.Errorf("filter VXLAN packets: %w", err)
	}
	if changed {
		r.Log.Info("Wrote the packet filter", "vxlans", len(in.filter.VNIs), "vteps", len(in.filter.VTEPs))
		r.Trigger() // what was learned between the look at the links and now goes with the next round
	}
	return nil
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

// take takes the steps, and goes on after one that fails. A failed link's later
// steps are left out.
func (r *Reconciler) take(ctx context.Context, changes []Change, step func(context.Context, Change) error) Failures {
	failed := Failures{}
	for _, c := range changes {
		id := c.id()
		if failed[id] != nil {
			continue
		}
		if err := step(ctx, c); err != nil {
			failed[id] = err
		}
	}
	return failed
}

// step takes one step, and looks again before it removes a link. A Pod that was
// given the link has its record by then; one that comes later waits for the lock. No
// Pod was given a half-made one: a record of one that wants it does not keep it.
func (r *Reconciler) step(ctx context.Context, c Change) error {
	if c.Op == Delete && !c.HalfMade {
		r.mu.Lock()
		delete(r.view.ready, c.Link.Identity)
		r.mu.Unlock()
		links, err := r.Pods.Links()
		if err != nil {
			return fmt.Errorf("delete link %s: ask who uses it: %w", c.Link.Name, err)
		}
		if links[c.Link.Identity] {
			return nil // a Pod came first; the next round plans afresh
		}
	}
	err := r.Kernel.Apply(ctx, c)
	if r.Observer != nil {
		r.Observer.Step(c.Op, err)
	}
	if err != nil && c.Op == Untag {
		return fmt.Errorf("%w on %s: %w", errTagsPass, c.name(), err)
	}
	if err != nil {
		return fmt.Errorf("%s link %s: %w", c.Op, c.name(), err)
	}
	r.Log.Info("changed the host's links", "op", c.Op, "link", c.name(), "device", c.Link.Device,
		"add", c.Add, "drop", c.Drop)
	return nil
}
