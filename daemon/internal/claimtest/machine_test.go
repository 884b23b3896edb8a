// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package claimtest_test

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"sync"

	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam/claims"
)

// errKilled ends what a daemon was doing when it was killed.
var errKilled = errors.New("the daemon was killed")

// record is an attachment in the journal.
type record struct {
	claims.Use
	net *network.Network
	uid string // of the DanmEp, once it was made
}

// machine is what outlives a node's daemon: journal and interfaces.
type machine struct {
	name, uid string

	mu          sync.Mutex
	incarnation int64 // how often the daemon was started; all of another life are killed
	records     map[string]record
	seqs        map[claims.Key]int64
	interfaces  map[netip.Addr]bool
}

func newMachine(name string) *machine {
	return &machine{
		name: name, uid: "uid-of-" + name,
		records: map[string]record{}, seqs: map[claims.Key]int64{}, interfaces: map[netip.Addr]bool{},
	}
}

// update changes journal or interfaces, unless the daemon of that life was killed.
func (m *machine) update(life int64, change func()) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.incarnation != life {
		return errKilled
	}
	change()
	return nil
}

// nextIncarnation begins another life, which ends the former one.
func (m *machine) nextIncarnation() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.incarnation++
	return m.incarnation
}

// record returns an attachment of the journal.
func (m *machine) record(owner string) (record, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	rec, ok := m.records[owner]
	return rec, ok
}

// allRecords returns the whole journal.
func (m *machine) allRecords() []record {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Collect(maps.Values(m.records))
}

// previousState is what the journal tells the allocator of the lives before.
func (m *machine) previousState() ([]claims.Use, map[claims.Key]int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var uses []claims.Use
	for _, rec := range m.records {
		uses = append(uses, rec.Use)
	}
	return uses, maps.Clone(m.seqs)
}

// config is the node daemon's, with times that suit a test.
func (m *machine) config(life int64, change func(*claims.Config)) claims.Config {
	cfg := claims.Config{
		Node: m.name, NodeUID: m.uid, Life: life,
		Live: func(context.Context) (map[netip.Addr]bool, error) {
			m.mu.Lock()
			defer m.mu.Unlock()
			return maps.Clone(m.interfaces), nil
		},
		Remember: func(key claims.Key, seq int64) error {
			return m.update(life, func() { m.seqs[key] = seq })
		},
	}
	if change != nil {
		change(&cfg)
	}
	return cfg
}
