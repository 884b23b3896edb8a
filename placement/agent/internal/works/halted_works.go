// SPDX-License-Identifier: Apache-2.0

package works

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/patchbay-cni/patchbay/placement/agent/internal/records"
)

// haltedWorks are the Works that do not match their records, because their hub was restored from a backup
// or is another one. The agent carries out none of them. While there is one, it removes nothing, and
// applies no Work without a record.
type haltedWorks struct {
	hub     *hubClient
	records *records.Store

	mu     sync.Mutex
	byName map[string]bool
}

func newHaltedWorks(hub *hubClient, applied *records.Store) *haltedWorks {
	return &haltedWorks{hub: hub, records: applied, byName: map[string]bool{}}
}

// update compares a cached Work with its record. It returns true when other Works may continue now, or
// must wait now. It reads from memory under the lock, so that an older result never replaces a newer one.
func (h *haltedWorks) update(ctx context.Context, name string) (changed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	work, rec := h.hub.cachedWork(ctx, name), h.records.Get(name)
	return h.set(name, work != nil && rec != nil && !matchesRecord(work, rec))
}

// set notes whether a Work is halted. The caller has the lock.
func (h *haltedWorks) set(name string, halted bool) (changed bool) {
	before := len(h.byName) > 0
	if halted {
		h.byName[name] = true
	} else {
		delete(h.byName, name)
	}
	return before != (len(h.byName) > 0)
}

// first returns the first halted Work by name, and how many there are.
func (h *haltedWorks) first() (name string, count int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.byName) == 0 {
		return "", 0
	}
	return slices.Min(slices.Collect(maps.Keys(h.byName))), len(h.byName)
}

// any returns the name of a Work that does not match its record; "" when there is none. It compares the
// positions of all Works, because after a restore of the hub the cache has all Works at once, while their
// events come one after the other.
func (h *haltedWorks) any(ctx context.Context) string {
	if name, count := h.first(); count > 0 {
		return name
	}
	works, err := h.hub.listWorks(ctx)
	if err != nil {
		log(ctx).Error(err, "Failed to list Works")
		return "(unknown)"
	}
	for i := range works {
		rec := h.records.Get(works[i].Name)
		if rec != nil && !continuesHistory(&works[i].Spec, &rec.Spec.Work) {
			return works[i].Name
		}
	}
	return ""
}
