// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/patchbay-cni/patchbay/daemon/attach"
	"github.com/patchbay-cni/patchbay/daemon/cluster"
	"github.com/patchbay-cni/patchbay/daemon/journal"
	"github.com/patchbay-cni/patchbay/ipam/claims"
	"github.com/patchbay-cni/patchbay/objects"
)

const (
	// lateWrites is after how long no write of a former life is under way any more:
	// the API server works on a request for a minute at most.
	lateWrites = 2 * time.Minute
	// settleEvery is the time between later looks at what nobody seems to use. Each
	// reads all networks that this node has had addresses of.
	settleEvery = 30 * time.Minute
	// giveBackPatience bounds the last writes. With the grace of requests in work, it
	// stays below the Pod's termination grace period of 30 s.
	giveBackPatience = 4 * time.Second
)

// openAddresses starts the node's allocator from the journal. With a damaged journal
// it reports false: to go on without a record would free addresses that are in use,
// and to stop would keep the Pods that are to end from their DEL.
func (d *daemon) openAddresses(ctx context.Context) (opened bool, err error) {
	f, err := d.former()
	if errors.Is(err, journal.ErrCorrupt) {
		err = d.howToMend(err)
		d.log.Error(err, "No Pod can be attached")
		d.addresses.Refuse(err)
		return false, nil
	}
	if err != nil {
		return false, err
	}
	allocator := claims.New(d.metrics.Store(objects.NewStore(d.conn.Direct)), d.claims(ctx, f.life))
	uses := cluster.Uses(f.records)
	allocator.Resume(uses, f.seqs)
	d.holdings.Add(uses, f.seqs)
	d.addresses.Open(allocator)
	return true, nil
}

// howToMend adds to an error of a damaged journal what to do. Only a node without Pods
// can do without its records.
func (d *daemon) howToMend(err error) error {
	if !errors.Is(err, journal.ErrCorrupt) {
		return err
	}
	return fmt.Errorf("%w; to mend it, drain the node, remove %s and delete this Pod of patchbayd", err, d.options.journal)
}

// claims is what the allocator needs to know of this node.
func (d *daemon) claims(ctx context.Context, life int64) claims.Config {
	host, _ := d.own.Host()
	return claims.Config{
		Node: host.Name, NodeUID: host.UID, Life: life,
		Reserved: d.reserved(ctx),
		Nodes:    func() int { return d.nodes.Nodes(ctx) },
		Usable:   d.own.Usable,
		Gone:     d.own.Gone,
		Live:     (&liveAddresses{read: d.kernel.LiveAddresses}).get,
		Remember: func(key claims.Key, seq int64) error { return d.journal.RememberSeq(host.UID, key, seq) },
		Observe:  d.metrics.Claim,
		Hold:     orNone(d.hold), Cool: orNone(d.cool),
		Report: func(err error) { d.log.Error(err, "Addresses are not as they were left") },
	}
}

// orNone turns a flag's 0, which is none, into what claims takes for none.
func orNone[N int | time.Duration](n N) N {
	if n == 0 {
		return -1
	}
	return n
}

// former is what the journal has of former lives.
type former struct {
	life    int64
	records []*attach.Record
	seqs    map[claims.Key]int64
}

// former counts this life and reads the sandboxes of the former ones, and the seqs
// that this Node's entries had.
func (d *daemon) former() (f former, err error) {
	if f.life, err = d.journal.NextLife(); err != nil {
		return f, err
	}
	if f.records, err = d.journal.List(); err != nil {
		return f, fmt.Errorf("read the addresses in use from the journal: %w", err)
	}
	host, _ := d.own.Host()
	if f.seqs, err = d.journal.Seqs(host.UID); err != nil {
		return f, fmt.Errorf("read what this node had of networks from the journal: %w", err)
	}
	return f, nil
}

// settle frees what former lives left, until ctx ends.
func (d *daemon) settle(ctx context.Context) {
	settleNowAndThen(ctx, d.networks.Reread, func(ctx context.Context) error {
		return d.addresses.Settle(ctx, d.holdings.Keys()...)
	})
}

// settleNowAndThen settles at once; again when no write of a former life can come any
// more, with a fresh look at where this node has an entry; and then now and then, for
// what was spared because an interface had it.
func settleNowAndThen(ctx context.Context, reread, settle func(context.Context) error) {
	_ = cluster.Persist(ctx, settle) // ends with ctx at the latest
	if !sleep(ctx, lateWrites) {
		return
	}
	_ = cluster.Persist(ctx, reread)
	for {
		_ = cluster.Persist(ctx, settle)
		if !sleep(ctx, settleEvery/2+rand.N(settleEvery)) {
			return
		}
	}
}

// sleep waits, and reports whether ctx lasted.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// giveBack frees what is kept ready, after the last request was served: a node that
// goes for long must not keep addresses from the others. What cannot be written in
// time stays in the node's entries, for the next life.
func (d *daemon) giveBack(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), d.lastWrites)
	defer cancel()
	if err := d.addresses.GiveBack(ctx); err != nil {
		d.log.Info("Addresses stay with this node that were kept ready", "error", err.Error())
	}
}
