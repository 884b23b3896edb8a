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
	"github.com/patchbay-cni/patchbay/ipam/allocator"
)

// errKilled is the error of a killed daemon's calls.
var errKilled = errors.New("the daemon was killed")

// record is an attachment in the journal.
type record struct {
	allocator.Use
	net *network.Network
	uid string // the UID of the DanmEp, empty before its creation
}

// machine has what remains after the daemon's end: journal and interfaces.
type machine struct {
	name, uid string

	mu          sync.Mutex
	incarnation int64 // the number of daemon starts; earlier daemons are killed
	records     map[string]record
	seqs        map[network.Key]int64
	interfaces  map[netip.Addr]bool
}

// newMachine returns a machine with an empty journal.
func newMachine(name string) *machine {
	return &machine{
		name: name, uid: "uid-of-" + name,
		records: map[string]record{}, seqs: map[network.Key]int64{}, interfaces: map[netip.Addr]bool{},
	}
}

// update changes journal or interfaces, unless the daemon of that incarnation was killed.
func (m *machine) update(incarnation int64, change func()) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.incarnation != incarnation {
		return errKilled
	}
	change()
	return nil
}

// nextIncarnation starts another incarnation, which kills the earlier one.
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

// previousState returns the uses and sequence numbers of the journal.
func (m *machine) previousState() ([]allocator.Use, map[network.Key]int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var uses []allocator.Use
	for _, rec := range m.records {
		uses = append(uses, rec.Use)
	}
	return uses, maps.Clone(m.seqs)
}

// config returns the configuration of an allocator, changed by change.
func (m *machine) config(incarnation int64, change func(*allocator.Config)) allocator.Config {
	cfg := allocator.Config{
		Node: m.name, NodeUID: m.uid, Incarnation: incarnation,
		LiveAddresses: func(context.Context) (map[netip.Addr]bool, error) {
			m.mu.Lock()
			defer m.mu.Unlock()
			return maps.Clone(m.interfaces), nil
		},
		JournalSeq: func(key network.Key, seq int64) error {
			return m.update(incarnation, func() { m.seqs[key] = seq })
		},
	}
	if change != nil {
		change(&cfg)
	}
	return cfg
}
