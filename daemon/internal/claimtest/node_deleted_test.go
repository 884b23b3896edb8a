// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package claimtest_test

import (
	"testing"
	"time"

	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam/allocator"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

// A node loses its power, its Node is deleted, and other nodes get all its addresses. It then returns with
// another Node UID and releases its old addresses, which must not free those of other nodes.
func TestDeletedNodeReturns(t *testing.T) {
	t.Parallel()
	env := apitest.Start(t)
	l := newTrio(t, env, "10.0.0.0/25", func(cfg *allocator.Config) {
		cfg.Cooldown, cfg.ReclaimTimeout = 50*time.Millisecond, time.Minute
	})
	l.attach(t, 5, 0, 1, 2)
	off, key := l.hosts[2], network.KeyOf(l.net)
	claimed, err := off.attach(t.Context(), l.net) // without a DanmEp
	if err != nil {
		t.Fatal(err)
	}
	off.powerDown()
	if _, err := l.collector.FreeGoneNodes(t.Context(), key, map[string]string{off.name: "other-uid"}); err != nil {
		t.Fatal(err)
	}
	if o, err := readNetwork(t, env, l.net); err != nil || o.IPAM.Held[off.name].UID == "" {
		t.Fatalf("eviction with another UID: got %+v and error %v, want the entry unchanged", o, err)
	}
	off.dropInterfaces()
	l.reclaimNode(t, off)
	for _, h := range l.hosts[:2] {
		for range (exactPoolSize - 10) / 2 {
			owner, err := h.attach(t.Context(), l.net)
			if err != nil {
				t.Fatal(err)
			}
			l.owners[l.index(h)] = append(l.owners[l.index(h)], owner)
		}
	}

	off.uid += "-2"
	if err := off.reconcile(t.Context(), off.start()); err != nil {
		t.Fatal(err)
	}
	for _, owner := range append(l.owners[2], claimed) {
		if err := off.retry(t.Context(), func(d *daemon) error { return d.detach(t.Context(), owner) }); err != nil {
			t.Fatal(err)
		}
	}
	l.owners[2] = nil
	if err := checkUsed(t, env, l.net, exactPoolSize); err != nil {
		t.Errorf("after the late releases: %v", err)
	}
	l.detachAll(t)
}

// dropInterfaces removes the machine's interfaces and keeps its journal, like a reboot.
func (h *host) dropInterfaces() {
	h.mu.Lock()
	defer h.mu.Unlock()
	clear(h.seqs) // they belong to the old Node UID
	for owner, rec := range h.records {
		h.fleet.registry.release(rec.Key, rec.V4, owner)
		rec.Phase = allocator.Releasing
		h.records[owner] = rec
	}
	clear(h.interfaces)
}
