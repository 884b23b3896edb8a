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

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// Config of a Reconciler; every field but Observer is needed.
type Config struct {
	// Node is this node's name.
	Node string
	// Version of the daemon and KernelVersion of the node, for the status.
	Version, KernelVersion string
	// Kernel, Firewall, Sources, Cluster and Pods are the world outside.
	Kernel      Kernel
	Firewall    Firewall
	SourceGuard SourceGuard
	KubeClient  KubeClient
	Pods        PodLinks
	// VTEPRanges are where VTEPs may be; on NICs without, in this node's subnets.
	VTEPRanges VTEPRanges
	// Log gets what changes and what fails.
	Log logr.Logger
	// Observer may be nil.
	Observer Observer
}

// Reconciler keeps the host's links as the networks need them. It is safe for
// concurrent use.
type Reconciler struct {
	Config
	trigger chan struct{}

	// applyMu serialises steps and packet filters: between the look whether Pods use a
	// link and its removal, no Pod may get it.
	applyMu sync.Mutex
	// ensureMu lets Pods that wait for the same link make it once.
	ensureMu sync.Mutex

	mu    sync.Mutex // guards what follows
	cache linkCache
	// changedLinks are the links that changed since the round's last look at them.
	changedLinks map[string]bool
	failures     Failures
	reported     reportState
	// refusedVTEPs are the VTEPs that the last round left out.
	refusedVTEPs VTEPs
}

// New returns a Reconciler that does nothing before Run or Parent.
func New(c Config) *Reconciler {
	return &Reconciler{Config: c, trigger: make(chan struct{}, 1), failures: Failures{}}
}

// Trigger asks for a round; it does not wait. To be called when a network or
// another node's NodeNetwork changed.
func (r *Reconciler) Trigger() {
	select {
	case r.trigger <- struct{}{}:
	default:
	}
}

const (
	// batchDelay gathers what comes in one go, such as a list of networks.
	batchDelay = 50 * time.Millisecond
	// resyncInterval is the round that nothing asked for.
	resyncInterval = time.Minute
	// initialBackoff doubles up to resync.
	initialBackoff = time.Second
)

// Run makes rounds until ctx ends: at once, when something changes, after
// failures with growing pauses, and now and then.
func (r *Reconciler) Run(ctx context.Context) error {
	go r.watchKernel(ctx)
	retry := initialBackoff
	for {
		pause := resyncInterval
		if err := r.Reconcile(ctx); err != nil && ctx.Err() == nil {
			r.Log.Error(err, "host links are not as they should be", "retry", retry)
			pause, retry = retry, min(2*retry, resyncInterval)
		} else {
			retry = initialBackoff
		}
		if !r.waitForTrigger(ctx, pause) {
			return nil
		}
	}
}

// watchKernel listens to the kernel, again and again.
func (r *Reconciler) watchKernel(ctx context.Context) {
	for ctx.Err() == nil {
		if err := r.Kernel.Watch(ctx, r.linkChanged); err != nil && ctx.Err() == nil {
			r.Log.Error(err, "link events are lost until they are watched again")
		}
		r.linkChanged("") // whatever happened meanwhile
		sleep(ctx, initialBackoff)
	}
}

// waitForTrigger returns false when ctx ended.
func (r *Reconciler) waitForTrigger(ctx context.Context, pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	case <-r.trigger:
	}
	sleep(ctx, batchDelay)
	select { // what came while it settled is seen by the coming round
	case <-r.trigger:
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
		defer func() { r.Observer.ObserveReconcile(time.Since(start), err, status) }()
	}
	r.startRecording()
	in, open, err := r.readAndFilter(ctx)
	if err != nil {
		return err
	}
	changes := Diff(in.plan, in.state, in.inUse)
	failed := r.applyAll(ctx, changes, r.lockAndApply)
	if len(changes) > 0 {
		r.startRecording()
		if err := r.refreshState(ctx, in, open); err != nil {
			return errors.Join(failed.join(), err)
		}
		in.dropResolved(failed)
	}
	open.tagFilter = failed.takeTagFailures()
	r.publishCache(in, failed)
	r.logRefused(in.refusedVTEPs)
	now := Status(in.plan, in.state, failed)
	now.Conditions = append(now.Conditions, in.filter.isolatedCondition(open), in.plan.vtepsAcceptedCondition(in.refusedVTEPs))
	now.Version, now.KernelVersion = r.Version, r.KernelVersion
	status = &now
	return errors.Join(failed.join(), open.retryable(), r.report(ctx, in.statusExists, status, changes))
}

// readAndFilter holds the lock for both: a filter from before a Pod's link was made must not
// replace the one that the link was made behind.
func (r *Reconciler) readAndFilter(ctx context.Context) (in *scope, open *isolationErrors, err error) {
	r.applyMu.Lock()
	defer r.applyMu.Unlock()
	if in, err = r.newScope(ctx, nil); err != nil {
		return nil, nil, err
	}
	return in, &isolationErrors{vxlanFilter: r.applyFirewall(ctx, in), sourceGuard: r.applySourceGuard(ctx, in, true)}, nil
}

// refreshState reads the links after the steps, and guards those that were made. The lock keeps
// out a Pod that is given a link meanwhile, and with it a network that the plan may not have.
func (r *Reconciler) refreshState(ctx context.Context, in *scope, open *isolationErrors) (err error) {
	r.applyMu.Lock()
	defer r.applyMu.Unlock()
	if in.state, err = r.Kernel.State(ctx); err != nil {
		return fmt.Errorf("read the host's links: %w", err)
	}
	open.sourceGuard = r.applySourceGuard(ctx, in, false)
	return nil
}

// logRefused names VTEPs that do not count, when they are others than before.
func (r *Reconciler) logRefused(refused VTEPs) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(refused) > 0 && !maps.EqualFunc(refused, r.refusedVTEPs, slices.Equal) {
		r.Log.Info("VXLANs leave VTEPs out that are neither in this node's subnets nor in --vtep-ranges", "vteps", refused)
	}
	r.refusedVTEPs = refused
}

// lockAndApply is step for who has no lock.
func (r *Reconciler) lockAndApply(ctx context.Context, c Change) error {
	r.applyMu.Lock()
	defer r.applyMu.Unlock()
	return r.applyChange(ctx, c)
}

// newScope collects it; extra is a network that the cluster's cache may not have yet.
func (r *Reconciler) newScope(ctx context.Context, extra *network.Network) (*scope, error) {
	nets, err := r.KubeClient.Networks(ctx)
	partly := errors.Is(err, ErrNetworksIncomplete)
	if err != nil && !partly {
		return nil, fmt.Errorf("list networks: %w", err)
	}
	nets = withNetwork(nets, extra)
	links, err := r.Pods.Links()
	if err != nil {
		return nil, fmt.Errorf("list links that Pods use: %w", err)
	}
	state, err := r.Kernel.State(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the host's links: %w", err)
	}
	in := &scope{networks: nets, state: state, inUse: r.inUseFunc(ctx, links), statusExists: true, incomplete: partly}
	var peers VTEPs
	if nodes, err := r.KubeClient.NodeNetworks(ctx); err == nil {
		peers, in.refusedVTEPs = PeerVTEPs(nodes, r.Node).splitAccepted(state, r.VTEPRanges)
		in.statusExists = slices.ContainsFunc(nodes, func(n v1.NodeNetwork) bool { return n.Name == r.Node })
	} else {
		r.Log.Info("other nodes are not known; forwarding entries stay", "error", err)
	}
	in.plan = Desired(nets, state, peers)
	in.filter = in.plan.vxlanFilter(state, peers)
	if partly {
		in.keepUnknown()
	}
	return in, nil
}

// inUseFunc tells links that Pods of the journal or anything else is on. The kernel is
// asked at most once, and only when there is a link to remove or to make narrower:
// that is a look into every namespace. If it does not answer, all are in use.
func (r *Reconciler) inUseFunc(ctx context.Context, byPods map[network.Link]bool) InUseFunc {
	slaves := sync.OnceValues(func() (map[string]bool, error) {
		on, err := r.Kernel.LinksInUse(ctx)
		if err != nil {
			r.Log.Error(err, "what is on the host's links is not known: none is removed")
		}
		return on, err
	})
	return func(f *ObservedLink) bool {
		if byPods[f.Identity] || f.Identity.IsNIC() {
			return byPods[f.Identity]
		}
		on, err := slaves()
		return err != nil || on[f.Name]
	}
}

// applyFirewall sets the packet filter before a link is made: no VXLAN is open for a moment.
func (r *Reconciler) applyFirewall(ctx context.Context, in *scope) error {
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

// applySourceGuard guards the links whose networks all want it. Unless the plan is of all
// networks as they are now, links that it does not guard stay as they are.
func (r *Reconciler) applySourceGuard(ctx context.Context, in *scope, current bool) error {
	changed, err := r.SourceGuard.Apply(ctx, in.guardedLinks(current))
	if err != nil {
		return fmt.Errorf("%w: %w", errSourcesNotGuarded, err)
	}
	if changed {
		r.Log.Info("Changed the source guard")
	}
	return nil
}

// applyAll takes the steps, and goes on after one that fails. A failed link's later
// steps are left out.
func (r *Reconciler) applyAll(ctx context.Context, changes []Change, step func(context.Context, Change) error) Failures {
	failed := Failures{}
	for _, c := range changes {
		id := c.identity()
		if failed[id] != nil {
			continue
		}
		if err := step(ctx, c); err != nil {
			failed[id] = err
		}
	}
	return failed
}

// applyChange takes one step, and looks again before it removes a link. A Pod that was
// given the link has its record by then; one that comes later waits for the lock. No
// Pod was given a half-made one: a record of one that wants it does not keep it.
func (r *Reconciler) applyChange(ctx context.Context, c Change) error {
	if c.Op == OpDelete && !c.OnlyUnfinished {
		r.mu.Lock()
		delete(r.cache.ready, c.Link.Identity)
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
		r.Observer.ObserveStep(c.Op, err)
	}
	if err != nil && c.Op == OpFilterTags {
		return fmt.Errorf("%w on %s: %w", errTagsNotFiltered, c.linkName(), err)
	}
	if err != nil {
		return fmt.Errorf("%s link %s: %w", c.Op, c.linkName(), err)
	}
	r.Log.Info("changed the host's links", "op", c.Op, "link", c.linkName(), "device", c.Link.Device,
		"add", c.Add, "drop", c.Drop)
	return nil
}
