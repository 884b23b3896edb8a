// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package claimtest_test

import (
	"testing"
	"time"

	"github.com/patchbay-cni/patchbay/ipam/claims"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

// A node's power goes, its Node is deleted, others get all of its addresses; then it is
// back, with another Node UID, and releases what it had: nothing of others' goes.
func TestDeletedNodeReturns(t *testing.T) {
	t.Parallel()
	env := apitest.Start(t)
	l := newTrio(t, env, "10.0.0.0/25", func(cfg *claims.Config) {
		cfg.Cool, cfg.Patience = 50*time.Millisecond, time.Minute
	})
	l.attach(t, 5, 0, 1, 2)
	off, key := l.hosts[2], claims.KeyOf(l.net)
	claimed, err := off.attach(t.Context(), l.net) // and no DanmEp
	if err != nil {
		t.Fatal(err)
	}
	off.powerDown()
	if _, err := l.collector.Evict(t.Context(), key, map[string]string{off.name: "another node's"}); err != nil {
		t.Fatal(err)
	}
	if o, err := readNetwork(t, env, l.net); err != nil || o.IPAM.Held[off.name].UID == "" {
		t.Fatalf("evicted by another UID: %+v, %v", o, err)
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

// dropInterfaces takes the machine's interfaces away; its journal stays, of a former Node.
func (h *host) dropInterfaces() {
	h.mu.Lock()
	defer h.mu.Unlock()
	clear(h.seqs) // they are of that Node UID only
	for owner, rec := range h.records {
		h.fleet.registry.release(rec.Key, rec.V4, owner)
		rec.Phase = claims.Releasing
		h.records[owner] = rec
	}
	clear(h.interfaces)
}
