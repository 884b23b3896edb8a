// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"github.com/patchbay-cni/patchbay/daemon/internal/addresses"
	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
	"github.com/patchbay-cni/patchbay/daemon/internal/journal"
	"github.com/patchbay-cni/patchbay/daemon/internal/kubeclient"
	"github.com/patchbay-cni/patchbay/daemon/internal/networkcache"
	"github.com/patchbay-cni/patchbay/daemon/internal/nodestate"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam/allocator"
)

// allocatorManager opens the node's address allocator from the journal, collects unused
// addresses while the daemon runs, and releases the warm pool when it stops.
type allocatorManager struct {
	options   *options
	log       logr.Logger
	journal   *journal.Journal
	nodeState *nodestate.NodeState
	store     allocator.Store
	// observe receives the duration and the error of each claim that the warm pool cannot serve.
	observe func(took time.Duration, err error)
	// nodeCount returns the number of nodes of the cluster.
	nodeCount func() int
	// reserved returns the nodes' own addresses in the subnets of a network.
	reserved      func(*network.Network) []netip.Addr
	liveAddresses *liveAddresses
	// readNetworks reads all networks, and adds this node's entries in them to entries.
	readNetworks func(context.Context) error

	deferred *addresses.DeferredAllocator
	entries  *networkcache.NodeEntries
}

// open creates the allocator from the journal and opens it. It returns false when the journal is
// corrupt: without all records the allocator would free addresses in use. The daemon keeps
// running, so that Pods can be deleted.
func (a *allocatorManager) open() (opened bool, err error) {
	state, err := a.readJournal()
	if errors.Is(err, journal.ErrCorrupt) {
		err = withRepairSteps(err, a.options.journal)
		a.log.Error(err, "Failed to read the journal, no Pod can be attached")
		a.deferred.Fail(err)
		return false, nil
	}
	if err != nil {
		return false, err
	}
	claims := allocator.New(a.store, a.config(state.incarnation))
	uses := addresses.RecordedUses(state.records)
	claims.Resume(uses, state.seqs)
	a.entries.Add(uses, state.seqs)
	a.deferred.Open(claims)
	return true, nil
}

// journalState is what the journal has from earlier incarnations of the daemon.
type journalState struct {
	// incarnation is the number of this incarnation.
	incarnation int64
	records     []*attach.Record
	// seqs has the sequence numbers of this Node's entries.
	seqs map[network.Key]int64
}

// readJournal starts a new incarnation and reads the journal.
func (a *allocatorManager) readJournal() (s journalState, err error) {
	if s.incarnation, err = a.journal.NextIncarnation(); err != nil {
		return s, err
	}
	if s.records, err = a.journal.List(); err != nil {
		return s, fmt.Errorf("read the addresses in use from the journal: %w", err)
	}
	node, _ := a.nodeState.Identity()
	if s.seqs, err = a.journal.Seqs(node.UID); err != nil {
		return s, fmt.Errorf("read the node's sequence numbers from the journal: %w", err)
	}
	return s, nil
}

// config returns the configuration of the allocator.
func (a *allocatorManager) config(incarnation int64) allocator.Config {
	node, _ := a.nodeState.Identity()
	return allocator.Config{
		Node: node.Name, NodeUID: node.UID, Incarnation: incarnation,
		Reserved:      a.reserved,
		NodeCount:     a.nodeCount,
		Usable:        a.nodeState.WarmPoolUsable,
		NodeGone:      a.nodeState.Gone,
		LiveAddresses: a.liveAddresses.get,
		JournalSeq:    func(key network.Key, seq int64) error { return a.journal.PutSeq(node.UID, key, seq) },
		ObserveClaim:  a.observe,
		WarmPoolSize:  zeroToDisabled(a.options.warmPoolLimit), Cooldown: zeroToDisabled(a.options.cooldown),
		Report: func(err error) { a.log.Error(err, "Found addresses in another state than the journal has") },
	}
}

// zeroToDisabled returns -1 for a flag's 0: in an allocator.Config, -1 disables and 0 is the default.
func zeroToDisabled[N int | time.Duration](n N) N {
	if n == 0 {
		return -1
	}
	return n
}

// collectUnused frees unused addresses of this node's entries until ctx ends.
func (a *allocatorManager) collectUnused(ctx context.Context) {
	collectUnused(ctx, a.readNetworks, func(ctx context.Context) error {
		return a.deferred.ReconcileEntries(ctx, a.entries.Keys()...)
	})
}

const (
	// inFlightWriteTimeout is the time after which no write of an earlier incarnation is in
	// flight. The API server processes a request for at most one minute.
	inFlightWriteTimeout = 2 * time.Minute
	// addressGCInterval is the mean time between two later collections. Each reads all networks
	// in which this node has had an entry.
	addressGCInterval = 30 * time.Minute
)

// collectUnused settles this node's entries at once, and again when no write of an earlier
// incarnation can be in flight, after it has read the networks again. It then settles at
// intervals, because an address that an interface used during a collection is skipped.
func collectUnused(ctx context.Context, readNetworks, settle func(context.Context) error) {
	_ = kubeclient.RetryUntilSuccess(ctx, settle) // its only error is that of ctx
	if !sleep(ctx, inFlightWriteTimeout) {
		return
	}
	_ = kubeclient.RetryUntilSuccess(ctx, readNetworks)
	for {
		_ = kubeclient.RetryUntilSuccess(ctx, settle)
		if !sleep(ctx, addressGCInterval/2+rand.N(addressGCInterval)) {
			return
		}
	}
}

// sleep waits, and returns false when ctx ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// defaultReleaseTimeout bounds releaseWarmPool.
const defaultReleaseTimeout = 4 * time.Second

// releaseWarmPool frees the addresses of the warm pool after the last request, so that other
// nodes can use them. Addresses that it cannot free in time stay in the node's entries for the
// next daemon, and the error says why.
func (a *allocatorManager) releaseWarmPool(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.options.releaseTimeout)
	defer cancel()
	err := a.deferred.ReleaseWarmPool(ctx)
	if err != nil {
		a.log.Info("Failed to release the warm pool, its addresses stay with this node", "error", err.Error())
	}
	return err
}

// liveAddressesTTL is how long a reading is shared. At its start, the daemon needs one for each
// of its networks, and a reading enters each sandbox. The allocator asks about interfaces of
// earlier incarnations, which can only disappear: an older reading may keep an address for longer
// than necessary, and never frees one in use.
const liveAddressesTTL = 10 * time.Second

// liveAddresses shares readings of the addresses on this node's interfaces.
type liveAddresses struct {
	// read takes a reading.
	read func(context.Context) (map[netip.Addr]bool, error)

	mu   sync.Mutex // guards the fields below
	at   time.Time
	last map[netip.Addr]bool
}

// get returns a reading that is at most liveAddressesTTL old. The caller must not change it.
func (l *liveAddresses) get(ctx context.Context) (map[netip.Addr]bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last != nil && time.Since(l.at) < liveAddressesTTL {
		return l.last, nil
	}
	at := time.Now()
	live, err := l.read(ctx)
	if err != nil {
		return nil, err
	}
	l.at, l.last = at, live
	return live, nil
}
