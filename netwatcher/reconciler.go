// SPDX-License-Identifier: Apache-2.0

package netwatcher

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/go-logr/logr"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
)

// Config configures a Reconciler. All fields but VTEPRanges, Delegates and Observer are required.
type Config struct {
	// Node is this node's name.
	Node string
	// Version of the daemon and KernelVersion of the node, for the status.
	Version, KernelVersion string
	// Kernel, Firewall and SourceGuard change the node.
	Kernel      Kernel
	Firewall    Firewall
	SourceGuard SourceGuard
	// KubeClient reads and writes objects.
	KubeClient KubeClient
	// Pods are the links that Pods use.
	Pods PodLinks
	// VTEPRanges are the prefixes of VTEPs by NIC. On a NIC without ranges, the VTEPs must be in
	// this node's subnets of it.
	VTEPRanges VTEPRanges
	// Delegates checks what the status reports on networks of other CNI plugins; nil for no report.
	Delegates DelegateChecker
	// Log logs changes and failures.
	Log logr.Logger
	// Observer may be nil.
	Observer Observer
}

// Reconciler keeps the host's links as the networks need them. It is safe for
// concurrent use.
type Reconciler struct {
	Config
	trigger  chan struct{}
	cache    linkCache
	reporter statusReporter
	applier  applier
	// ensureMu lets Pods that wait for the same link create it once.
	ensureMu sync.Mutex
}

// New returns a Reconciler, which does nothing before Run, Reconcile or Parent is called.
func New(c Config) *Reconciler {
	r := &Reconciler{Config: c, trigger: make(chan struct{}, 1)}
	r.reporter.Config, r.reporter.trigger = &r.Config, r.Trigger
	r.applier.locked = lockedApplier{Config: &r.Config, trigger: r.Trigger, dropReady: r.cache.drop}
	return r
}

// Trigger asks for a reconciliation and does not wait for it. Call it when a network or another
// node's NodeNetwork changed.
func (r *Reconciler) Trigger() {
	select {
	case r.trigger <- struct{}{}:
	default:
	}
}

// PodDetached asks for a reconciliation if a link waits until no Pod is on it. Call it when a Pod
// has left its links. It does not wait.
func (r *Reconciler) PodDetached() {
	if r.reporter.waiting() {
		r.Trigger()
	}
}

const (
	// batchDelay collects triggers that arrive together, such as those of a list of networks.
	batchDelay = 50 * time.Millisecond
	// resyncInterval is the time until a reconciliation without a trigger.
	resyncInterval = time.Minute
	// initialBackoff doubles up to resyncInterval.
	initialBackoff = time.Second
)

// Run reconciles until ctx ends: at once, when something changes, after failures with
// exponential back-off, and at least once in resyncInterval.
func (r *Reconciler) Run(ctx context.Context) error {
	go r.watchKernel(ctx)
	backoff := initialBackoff
	for {
		pause := resyncInterval
		if err := r.Reconcile(ctx); err != nil && ctx.Err() == nil {
			r.Log.Error(err, "Failed to reconcile host links", "retry", backoff)
			pause, backoff = backoff, min(2*backoff, resyncInterval)
		} else {
			backoff = initialBackoff
		}
		if !r.waitForTrigger(ctx, pause) {
			return nil
		}
	}
}

// watchKernel watches link events until ctx ends, and starts again after an error.
func (r *Reconciler) watchKernel(ctx context.Context) {
	for ctx.Err() == nil {
		if err := r.Kernel.Watch(ctx, r.linkChanged); err != nil && ctx.Err() == nil {
			r.Log.Error(err, "Failed to watch link events")
		}
		r.linkChanged("") // events were lost
		sleep(ctx, initialBackoff)
	}
}

// linkChanged handles a link event.
func (r *Reconciler) linkChanged(name string) {
	if r.cache.invalidate(name) {
		r.Trigger()
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
	select { // the next reconciliation includes triggers that arrived during the delay
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

// Reconcile reads the networks and links, plans, applies the changes and reports the status. It
// tries all links; the error joins the failures.
func (r *Reconciler) Reconcile(ctx context.Context) (err error) {
	start := time.Now()
	var status *v1.NodeNetworkStatus
	if r.Observer != nil {
		defer func() { r.Observer.ObserveReconcile(time.Since(start), err, status) }()
	}
	r.cache.startRecording()
	s, open, err := r.applier.readAndFilter(ctx)
	if err != nil {
		return err
	}
	changes := Diff(s.plan, s.state, s.inUse)
	failed := applyChanges(changes, func(c Change) error { return r.applier.applyChange(ctx, c) })
	if len(changes) > 0 {
		r.cache.startRecording()
		if err := r.applier.refresh(ctx, s, open); err != nil {
			return errors.Join(failed.join(), err)
		}
		s.dropResolved(failed)
	}
	open.tagFilter = failed.takeTagFailures()
	r.publishCache(s)
	r.reporter.logRefusedVTEPs(s.refusedVTEPs)
	current := newStatus(s.plan, s.state, failed, delegateRows(s.networks, r.Delegates), checkOwnFirst(r.Delegates))
	current.Conditions = append(current.Conditions, isolatedCondition(&s.filter, open), vtepsAcceptedCondition(s.plan, s.refusedVTEPs))
	if r.Delegates != nil {
		addNodeConfiguration(ctx, &current, r.Delegates)
	}
	current.Version, current.KernelVersion = r.Version, r.KernelVersion
	status = &current
	return errors.Join(failed.join(), open.retryable(), r.reporter.report(ctx, s.statusExists, status, changes))
}

// publishCache makes the outcome available to Parent, and logs newly refused networks.
func (r *Reconciler) publishCache(s *scope) {
	refused, missed := r.cache.publish(s)
	for ref, err := range refused {
		r.Log.Info("Refused a network", "network", ref.String(), "error", err.Error())
	}
	if missed {
		r.Trigger()
	}
}
