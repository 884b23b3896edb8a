// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"github.com/patchbay-cni/patchbay/network"
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
}

// NewSteward returns a Steward. Any number of them may be at work, beside the nodes.
func NewSteward(store Store, cfg StewardConfig) *Steward {
	c := Config{Reserved: cfg.Reserved, Timeout: cfg.Timeout, Backoff: cfg.Backoff, Report: cfg.Report, Rand: cfg.Rand}
	return &Steward{store: store, cfg: c.withDefaults()}
}

// Look says that the metadata of a network is at that version, as a watch tells.
func (s *Steward) Look(key Key, resourceVersion string) { s.versions.watch(key, resourceVersion) }

// Gone says that the watch knows a network no more.
func (s *Steward) Gone(key Key) { s.versions.forget(key) }

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

// Recover ends a network's recovery when each of the nodes has reported or is to be
// left out, and returns who is awaited. Without a recovery nobody is.
func (s *Steward) Recover(ctx context.Context, key Key, nodes, skip []string) (awaited []string, err error) {
	err = s.change(ctx, "recover", key, func(p *planner) error {
		awaited = nil
		rec := p.next.IPAM.Recovering
		if rec == nil {
			return nil
		}
		for _, n := range nodes {
			if !slices.Contains(rec.Done, n) && !slices.Contains(skip, n) {
				awaited = append(awaited, n)
			}
		}
		if len(awaited) == 0 {
			p.next.IPAM.Recovering = nil
		}
		return nil
	})
	return awaited, err
}
