// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/patchbay-cni/patchbay/internal/network"
)

// StewardConfig is what a Steward needs to know; the zero value will do.
type StewardConfig struct {
	// Reserved, Timeout, Backoff, Report and Rand are those of Config.
	Reserved         func(*network.Network) []netip.Addr
	Timeout, Backoff time.Duration
	Report           func(error)
	Rand             func() float64
}

// Steward looks after the addresses of a cluster: it corrects bitmaps, and frees what
// nodes cover that are gone. It has no entry of its own and claims nothing.
type Steward struct {
	store Store
	cfg   Config
	// versions are the newest that were seen: a write on an older object would hide
	// from the nodes that it is older.
	versions versions
	// limit counts the recoveries that nodes begin.
	limit limiter
}

// NewSteward returns a Steward. Any number of them may be at work, beside the nodes.
func NewSteward(store Store, cfg StewardConfig) *Steward {
	c := Config{Reserved: cfg.Reserved, Timeout: cfg.Timeout, Backoff: cfg.Backoff, Report: cfg.Report, Rand: cfg.Rand}
	return &Steward{store: store, cfg: c.withDefaults()}
}

// Look says that the metadata of a network is at that version, as a watch tells.
func (s *Steward) Look(key Key, resourceVersion string) { s.versions.watch(key, resourceVersion) }

// Gone says that the watch knows a network no more.
func (s *Steward) Gone(key Key) {
	s.versions.forget(key)
	s.limit.forget(key)
}

// Evict takes the entries of nodes that are gone out of a network, each if it has
// that Node UID, and frees what they alone covered. To say that a node is gone says
// that its machine is off: its Pods' addresses are covered by their DanmEps as long as
// those exist, and no longer.
func (s *Steward) Evict(ctx context.Context, key Key, gone map[string]string) (freed int64, err error) {
	err = s.change(ctx, "evict nodes from", key, func(p *planner) error {
		for node, uid := range gone {
			if h, ok := p.held[node]; ok && h.UID == uid {
				delete(p.held, node)
			}
		}
		p.sweep()
		freed = p.collected
		return p.collectErr
	})
	return freed, err
}

// EndDeletion takes the finalizer danm.io/in-use off a network in deletion that nobody
// uses any more, and reports whether it is off. It reads the network, then lists the
// DanmEps, then writes with the resourceVersion of that read: whoever begins to use the
// network has an entry in its status first, and so changes it. A conflict is ErrConflict,
// and somebody has changed the network.
func (s *Steward) EndDeletion(ctx context.Context, key Key) (done bool, err error) {
	newest := s.versions.newest(key)
	a := &Allocator{cfg: s.cfg, ctx: ctx}
	obj, err := ask(ctx, a, func(ctx context.Context) (*Object, error) { return s.store.Get(ctx, key.Ref) })
	switch {
	case errors.Is(err, ErrNotFound), err == nil && obj.UID != key.UID:
		return true, nil
	case err != nil:
		return false, fmt.Errorf("read network %v: %w", key.Ref, err)
	case older(obj.ResourceVersion, newest): // what used it since may be lost: it recovers first
		return false, s.change(ctx, "end deletion of", key, func(*planner) error { return nil })
	case !obj.Deleting || obj.used():
		return false, nil
	case !obj.Protected:
		return true, nil
	}
	endpoints, err := ask(ctx, a, func(ctx context.Context) ([]Endpoint, error) { return s.store.Endpoints(ctx, key.Ref) })
	if err != nil {
		return false, fmt.Errorf("list DanmEps of %v: %w", key.Ref, err)
	}
	if slices.ContainsFunc(endpoints, func(e Endpoint) bool { return e.of(key.UID) }) {
		return false, nil
	}
	_, err = ask(ctx, a, func(ctx context.Context) (*Object, error) { return s.store.Protect(ctx, obj, false) })
	if err != nil && !errors.Is(err, ErrNotFound) {
		return false, fmt.Errorf("take finalizer off network %v: %w", key.Ref, err)
	}
	return true, nil
}

// used reports whether a node has an entry in the object's status: it covers addresses,
// or has an attachment whose DanmEp may not exist yet. In a recovery it may have lost it.
func (o *Object) used() bool {
	if o.IPAM == nil {
		return false
	}
	if o.Recovering() {
		return true
	}
	for name := range o.IPAM.Held {
		if ofNode(name) {
			return true
		}
	}
	return false
}

// Recover starts a network's recovery when a node reports a rollback, or anew when one
// reports that in the midst of it. It ends the recovery when each of the nodes has
// reported to it or is to be left out, and returns who is awaited. Without a recovery
// nobody is. A node whose reports have begun too many is deferred for a while: its further
// reports begin none.
func (s *Steward) Recover(ctx context.Context, key Key, nodes, skip []string) (awaited []string, err error) {
	var began []string
	err = s.change(ctx, "recover", key, func(p *planner) error {
		awaited = nil
		if began = s.reporters(p, key); len(began) > 0 {
			if err := p.startRecovery(); err != nil {
				return err
			}
		}
		rec := p.next.IPAM.Recovering
		if rec == nil {
			return nil
		}
		for _, n := range nodes {
			if !slices.Contains(skip, n) && (!slices.Contains(rec.ReportedNodes, n) || p.stands(n)) {
				awaited = append(awaited, n)
			}
		}
		if len(awaited) == 0 {
			p.endRecovery()
		}
		return nil
	})
	if err == nil && len(began) > 0 {
		s.limit.began(key, began, time.Now())
	}
	return awaited, err
}

// reporters returns the nodes whose reports of a rollback begin a recovery. A node is deferred
// from its last one on, so that no further report stops others even for a moment.
func (s *Steward) reporters(p *planner, key Key) (began []string) {
	now := time.Now()
	deferred := maps.Clone(p.next.IPAM.RecoveryDeferredUntil) // also by a former leader
	maps.DeleteFunc(deferred, func(_ string, until metav1.MicroTime) bool { return !until.After(now) })
	for name, h := range p.held {
		if _, ok := deferred[name]; ok || !ofNode(name) || !unanswered(h.Rollback, p.next.IPAM.Recovering) {
			continue
		}
		begins, until := s.limit.allow(key, name, now)
		if begins {
			began = append(began, name)
		}
		if !until.IsZero() {
			if deferred == nil {
				deferred = map[string]metav1.MicroTime{}
			}
			deferred[name] = metav1.NewMicroTime(until.Truncate(time.Microsecond))
		}
	}
	if p.next.IPAM.RecoveryDeferredUntil = deferred; len(deferred) == 0 {
		p.next.IPAM.RecoveryDeferredUntil = nil
	}
	slices.Sort(began)
	return began
}

// stands reports whether a node still reports a rollback, and is not deferred.
func (p *planner) stands(node string) bool {
	_, deferred := p.next.IPAM.RecoveryDeferredUntil[node]
	return p.held[node].Rollback != nil && !deferred
}

// endRecovery takes with the recovery what nodes report that it did not wait for.
func (p *planner) endRecovery() {
	p.next.IPAM.Recovering = nil
	for name, h := range p.held {
		if p.stands(name) {
			h.Rollback = nil
			p.held[name] = h
		}
	}
}
