// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/groupcommit"
	"github.com/patchbay-cni/patchbay/ipam/status"
)

const (
	// requestTimeout bounds one request to the store.
	requestTimeout = 10 * time.Second
	// starvedPause is about how long a network's allocator waits for other nodes to free
	// addresses, before it reads the object again.
	starvedPause = 500 * time.Millisecond
	// reclaimLasts is how long no address is pre-allocated after a reclaim request.
	reclaimLasts = time.Minute
	// reclaimExpired is the age at which a request from before this daemon's start is ignored:
	// nothing removes it from the object. Clocks of nodes must differ by less.
	reclaimExpired = time.Hour
	// deadDanmEpsEvery is how often a recovering node checks whether its dead DanmEps are gone.
	deadDanmEpsEvery = time.Second
)

// commit is one attempt of the group commit: it reads the object, plans for all waiting
// requests, writes, and answers them. status.ErrConflict means that nothing was written, unless
// the write conflicted with a duplicate of itself; any other error leaves that open. The next
// attempt finds out.
func (n *networkAllocator) commit(ctx context.Context) error {
	r, err := n.read(ctx)
	if err != nil || r.obj == nil {
		return err
	}
	p, requests, err := n.plan(ctx, r)
	if err != nil {
		return err
	}
	if err := n.write(ctx, r, p); err != nil {
		return n.writeFailed(p, err)
	}
	n.apply(p, requests)
	if p.starved { // only other nodes can help
		groupcommit.Sleep(ctx, starvedPause/2+n.a.retry.Jitter(starvedPause, starvedPause, 0))
	}
	return nil
}

// ask makes one request to the store, with a timeout.
func ask[T any](ctx context.Context, timeout time.Duration, request func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return request(ctx)
}

// read gets the object and, before the first claim, sets its finalizer. The reading has no
// object when the network is gone and all requests are answered.
func (n *networkAllocator) read(ctx context.Context) (reading, error) {
	newest := n.a.versions.Newest(n.key)
	obj, err := ask(ctx, requestTimeout, func(ctx context.Context) (*status.Object, error) {
		return n.a.store.Get(ctx, n.key.Ref)
	})
	switch {
	case errors.Is(err, status.ErrNotFound):
		n.endWithNetwork(err)
		return reading{}, nil
	case err != nil:
		return reading{}, fmt.Errorf("read network %v: %w", n.key.Ref, err)
	case obj.UID != n.key.UID:
		n.endWithNetwork(fmt.Errorf("%w: the network was deleted and created again", status.ErrTryAgain))
		return reading{}, nil
	}
	r := reading{obj: obj, newest: newest, older: status.IsOlder(obj.ResourceVersion, newest)}
	if n.needsFinalizer(r) {
		r.obj, err = n.protect(ctx, obj)
	}
	return r, err
}

// endWithNetwork closes the network's allocator because the network is gone: claims fail, and
// there is nothing left to release. A new network of the same name gets a new allocator.
func (n *networkAllocator) endWithNetwork(cause error) {
	n.a.remove(n)
	n.a.versions.Forget(n.key)
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, r := range n.queue.Pending() {
		if r.Value.claim != nil {
			r.Answer(cause)
		} else {
			r.Answer(nil)
		}
	}
	n.closed, n.local = true, newLocalState()
	n.warm.Store(nil)
	n.wakeUp.stop()
}

// needsFinalizer records the reading and reports whether the finalizer must be set before
// claims can be granted or refused. It reports false for an object that has no finalizer and no
// bitmap although it cannot be new: the plan must report the rollback before another write hides
// that the object is older.
func (n *networkAllocator) needsFinalizer(r reading) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.readAt, n.objectMoved = time.Now(), false
	if n.lostWrite != r.obj.ResourceVersion {
		n.lostWrite = "" // a write on another version can no longer be applied
	}
	doubtful := r.older || r.obj.IPAM == nil && (n.local.entry.journalled > 0 || n.local.danmEpMissing)
	return n.hasClaims() && !answersClaims(r.obj) && !doubtful
}

// hasClaims reports whether a claim waits.
func (n *networkAllocator) hasClaims() bool { return len(claimsOf(n.queue.Waiting())) > 0 }

// answersClaims reports whether claims can be granted or refused without setting the finalizer
// first.
func answersClaims(o *status.Object) bool { return o.Deleting || o.Invalid != nil || o.Protected }

// protect sets the finalizer. Before that it writes an empty status.ipam if no node has used the
// network yet, because a network with the finalizer and without status.ipam counts as one that
// has lost its status.
func (n *networkAllocator) protect(ctx context.Context, obj *status.Object) (*status.Object, error) {
	var err error
	if obj.IPAM == nil {
		next := *obj
		next.IPAM = &v1.IPAMStatus{}
		obj, err = ask(ctx, requestTimeout, func(ctx context.Context) (*status.Object, error) {
			return n.a.store.Update(ctx, &next)
		})
		if err != nil {
			return nil, fmt.Errorf("write first status of network %v: %w", n.key.Ref, err)
		}
	}
	obj, err = ask(ctx, requestTimeout, func(ctx context.Context) (*status.Object, error) {
		return n.a.store.Protect(ctx, obj, true)
	})
	if err != nil {
		return nil, fmt.Errorf("add finalizer to network %v: %w", n.key.Ref, err)
	}
	return obj, nil
}

// plan plans for all waiting requests. If the plan needs the DanmEps, it lists them and plans
// again.
func (n *networkAllocator) plan(ctx context.Context, r reading) (*plan, []*groupcommit.Request[request], error) {
	p, requests, err := n.planWith(r, nil)
	if !errors.Is(err, status.ErrNeedEndpoints) {
		return p, requests, err
	}
	n.mu.Lock()
	found := danmEps{publishedBefore: n.local.addrs(published)}
	n.mu.Unlock()
	endpoints, err := ask(ctx, requestTimeout, func(ctx context.Context) ([]status.Endpoint, error) {
		return n.a.store.Endpoints(ctx, r.obj.Ref)
	})
	if err != nil {
		return nil, nil, fmt.Errorf("list DanmEps of %v: %w: %w", r.obj.Ref, status.ErrUnknownState, err)
	}
	if found.live, err = n.a.cfg.LiveAddresses(ctx); err != nil {
		return nil, nil, fmt.Errorf("find addresses on this node's interfaces: %w: %w", status.ErrUnknownState, err)
	}
	if !r.obj.Delegated() {
		found.Owners = status.OwnersOf(endpoints, r.obj.UID, n.a.cfg.Node)
	}
	return n.planWith(r, &found)
}

// planWith makes a plan. Before that, it withdraws the addresses from the warm pool that the plan
// frees or grants, so that no claim gets them from there.
func (n *networkAllocator) planWith(r reading, listed *danmEps) (*plan, []*groupcommit.Request[request], error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.countAddressless()
	requests := n.queue.Pending()
	var claims []*claim
	if answersClaims(r.obj) {
		claims = claimsOf(requests)
	}
	s, err := n.observe(r, listed, requests, len(claims) > 0)
	if err != nil {
		return nil, nil, err
	}
	for {
		p, err := makePlan(s, &n.local, claims)
		if err == nil && !p.withdraw.isEmpty() {
			s.withdrawn = append(s.withdrawn, n.withdraw(p.withdraw)...)
			s.warm = n.warmContents()
			continue
		}
		if !errors.Is(err, status.ErrNeedEndpoints) {
			for _, w := range p.warnings {
				n.report(w)
			}
		}
		if err != nil {
			return nil, nil, err
		}
		n.prepare(p, claims)
		return p, requests, nil
	}
}

// observe updates the local state from the object, and takes the snapshot for a plan. The
// error is status.ErrNeedEndpoints when the local state has to be compared with the DanmEps.
func (n *networkAllocator) observe(r reading, listed *danmEps, requests []*groupcommit.Request[request], claimed bool) (*snapshot, error) {
	cfg, l := &n.a.cfg, &n.local
	own, unreadable := ownEntry(r.obj, cfg.Node)
	l.recognise(own)
	if err := checkCutOff(own, unreadable, l, cfg); err != nil {
		return nil, err
	}
	s := n.newSnapshot(r, listed)
	s.rollback = detectRollback(r, own, unreadable, l, cfg)
	recheck := false
	for _, req := range requests {
		if c := req.Value.condition; c != nil {
			s.collect = s.collect || c.collect
			recheck = recheck || c.recheck
		}
	}
	inUse := claimed || len(l.uses) > 0 || l.addressless > 0
	if s.unused = r.obj.IPAM == nil && !inUse && !s.fence && !s.rollback.reassert; s.unused {
		l.verified = true
		return s, nil
	}
	if err := n.compareWithDanmEps(s, own, recheck); err != nil {
		return nil, err
	}
	if v4, v6 := r.obj.Subnets(); v4 != nil || v6 != nil {
		s.nodeAddresses = cfg.Reserved(r.obj.Network)
	}
	return s, nil
}

// newSnapshot returns a snapshot of the object, the warm pool and the configuration.
func (n *networkAllocator) newSnapshot(r reading, listed *danmEps) *snapshot {
	cfg, now := &n.a.cfg, time.Now()
	s := &snapshot{
		obj: r.obj, danmEps: listed, now: now, node: cfg.Node, nodeUID: cfg.NodeUID, incarnation: cfg.Incarnation,
		nodeCount: cfg.NodeCount(),
		fence:     n.lostWrite != "" && n.lostWrite == r.obj.ResourceVersion,
		warm:      n.warmContents(), demand: n.demand, maxWarm: cfg.WarmPoolSize,
		closing: n.a.closing.Load(), reclaim: n.reclaim.isActive(r.obj, now),
		cooldown: cfg.Cooldown, idleTimeout: cfg.WarmPoolIdleTimeout, reclaimTimeout: cfg.ReclaimTimeout,
	}
	if w := n.warm.Load(); w != nil {
		s.takes = int(w.takes.Load())
	}
	return s
}

// reclaimSeen is the last reclaim request of a network, and when this node first saw it, because
// clocks of nodes differ.
type reclaimSeen struct{ requested, seen time.Time }

// isActive reports whether a node has requested addresses within reclaimLasts. It records the
// request.
func (r *reclaimSeen) isActive(o *status.Object, now time.Time) bool {
	if o.IPAM == nil || o.IPAM.ReclaimRequestTime == nil {
		return false
	}
	if requested := o.IPAM.ReclaimRequestTime.Time; !requested.Equal(r.requested) {
		before := r.requested
		r.requested, r.seen = requested, now
		if before.IsZero() && now.Sub(requested) >= reclaimExpired {
			r.seen = requested
		}
	}
	return now.Sub(r.seen) < reclaimLasts
}

// compareWithDanmEps compares the local state with the entry and the DanmEps: completely the
// first time, and after a rollback the addresses that may have lost their DanmEp. The error is
// status.ErrNeedEndpoints if the DanmEps have to be listed first.
func (n *networkAllocator) compareWithDanmEps(s *snapshot, own status.Entry, recheck bool) error {
	l := &n.local
	unverified := !l.verified && (own.Present || len(l.uses) > 0)
	if (unverified || s.collect || recheck || s.rollback.reassert) && s.danmEps == nil {
		return status.ErrNeedEndpoints
	}
	if s.first = !l.verified; s.first {
		var found danmEps
		if s.danmEps != nil {
			found = *s.danmEps
		}
		recovering := s.rollback.report != nil || s.obj.Recovering()
		for _, a := range l.verify(own, found, recovering) {
			n.report(fmt.Errorf("%v is in use on this node, but a DanmEp of another node has it", a))
		}
	} else if s.rollback.reassert {
		l.coverLost(s.danmEps)
	}
	return nil
}

// prepare applies the effects of a plan that must come before its write.
func (n *networkAllocator) prepare(p *plan, claims []*claim) {
	for a := range p.freed {
		n.local.set(a, freeing)
	}
	for _, a := range p.orphans {
		n.local.uses[a] = use{state: orphan}
	}
	for _, c := range claims {
		c.tentative = p.tentative[c]
	}
}

// write writes a plan if it changes the object. The seq in the journal is never higher than that
// in the object: it is removed before the entry is removed, and recorded after the entry is
// written.
func (n *networkAllocator) write(ctx context.Context, r reading, p *plan) error {
	if !p.changed {
		n.observeWritten(p, r, r.obj)
		return n.journalSeq(p.entry)
	}
	if !p.entry.Present {
		if err := n.journalSeq(p.entry); err != nil {
			return err
		}
	}
	written, err := ask(ctx, requestTimeout, func(ctx context.Context) (*status.Object, error) {
		return n.a.store.Update(ctx, p.next)
	})
	if err != nil {
		return err
	}
	n.observeWritten(p, r, written)
	return n.journalSeq(p.entry)
}

// observeWritten records the object's version as the newest, even if a recovery has made it lower
// than before.
func (n *networkAllocator) observeWritten(p *plan, r reading, obj *status.Object) {
	if p.reassert {
		n.a.versions.ObserveRecovery(n.key, obj.ResourceVersion, r.newest)
		return
	}
	n.a.versions.ObserveResponse(n.key, obj.ResourceVersion)
}

// journalSeq records the seq of an entry in the journal, or 0 if there is no entry.
func (n *networkAllocator) journalSeq(e status.Entry) error {
	seq := e.Seq
	if !e.Present {
		seq = 0
	}
	n.mu.Lock()
	journalled := n.local.entry.journalled
	n.mu.Unlock()
	if seq == journalled {
		return nil
	}
	if err := n.a.cfg.JournalSeq(n.key, seq); err != nil {
		return fmt.Errorf("journal seq %d of the entry: %w", seq, err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.local.entry.journalled = seq
	return nil
}

// writeFailed records a failed write for the next attempt.
func (n *networkAllocator) writeFailed(p *plan, err error) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.queue.Trigger()
	if errors.Is(err, status.ErrConflict) {
		attempted := p.entry.Clone()
		n.local.entry.attempted = &attempted
	}
	if !errors.Is(err, status.ErrConflict) && !errors.Is(err, status.ErrNotFound) {
		n.lostWrite = p.next.ResourceVersion
		n.local.entry.seq, n.local.entry.sure = p.entry.Seq, false
	}
	return fmt.Errorf("write status of network %v: %w", n.key.Ref, err)
}

// apply applies the effects of a plan after its write (if it had any), and answers the requests
// that it served.
func (n *networkAllocator) apply(p *plan, requests []*groupcommit.Request[request]) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.countAddressless()
	l := &n.local
	n.lostWrite = ""
	for _, a := range p.gone {
		l.end(a)
	}
	n.room4, n.room6 = p.room4, p.room6
	if p.reassert {
		l.danmEpMissing = false
	}
	if p.next.IPAM.Recovering != nil {
		l.recovery = p.next.IPAM.Recovering.StartTime.Time
	}
	if p.deadDanmEps {
		n.tendIn(deadDanmEpsEvery)
		n.retry = true
	}
	if p.entry.Present {
		l.entry.seq, l.entry.fenced = max(l.entry.seq, p.entry.Seq), true
	}
	l.entry.attempted = nil
	l.wrote(p.entry)
	granted := n.grant(p, requests)
	n.stockWarmPool(p)
	// Answer last, so that a caller that claims again at once finds the warm pool filled.
	for _, g := range granted {
		g.request.Value.claim.addrs = g.addrs
		g.request.Answer(g.err)
	}
	n.answerConditions(p, requests)
	if l.needsWrite() {
		n.queue.Trigger()
	}
}

// grant records the granted claims, and returns the answers of those whose callers still wait.
// The next write frees the addresses of the others: see needsWrite.
func (n *networkAllocator) grant(p *plan, requests []*groupcommit.Request[request]) []grantedAnswer {
	of := make(map[*claim]*groupcommit.Request[request], len(requests))
	for _, r := range requests {
		of[r.Value.claim] = r
	}
	granted := make([]grantedAnswer, 0, len(p.answers))
	for _, a := range p.answers {
		r := of[a.to]
		if !r.Accept() {
			continue
		}
		granted = append(granted, grantedAnswer{a, r})
		if a.err == nil {
			n.local.grant(a.to, a.addrs)
		}
	}
	return granted
}

// grantedAnswer is an answer whose caller still waits.
type grantedAnswer struct {
	answer
	request *groupcommit.Request[request]
}

// answerConditions answers the requests whose condition holds now.
func (n *networkAllocator) answerConditions(p *plan, served []*groupcommit.Request[request]) {
	for _, r := range n.queue.Waiting() {
		c := r.Value.condition
		if c == nil || c.fresh && !slices.Contains(served, r) || !c.holds(&n.local) {
			continue
		}
		var err error
		if c.collect && r.Accept() {
			c.collected, err = p.collected, p.collectErr
		}
		r.Answer(err)
	}
}
