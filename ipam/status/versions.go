// SPDX-License-Identifier: Apache-2.0

package status

import (
	"strconv"
	"sync"

	"github.com/patchbay-cni/patchbay/internal/network"
)

// Versions has the newest resourceVersions of networks that this program has seen, in its watch and
// in responses to its own requests. The API server never returns an older version than before,
// unless etcd was restored from a backup. Versions are compared as numbers (KEP-5504); text that is
// not a number is ignored.
type Versions struct {
	mu sync.Mutex
	// known has the newest versions of both sources, watched those of the watch alone, because
	// a watch may lag behind responses.
	known, watched map[network.Key]uint64
}

// note records a version if it is the newest, and reports whether it is older than the newest one.
func note(of *map[network.Key]uint64, key network.Key, n uint64) (older bool) {
	if *of == nil {
		*of = map[network.Key]uint64{}
	}
	older = n < (*of)[key]
	(*of)[key] = max(n, (*of)[key])
	return older
}

// ObserveResponse records the version of a read or a write.
func (v *Versions) ObserveResponse(key network.Key, version string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if n, err := strconv.ParseUint(version, 10, 64); err == nil {
		note(&v.known, key, n)
	}
}

// ObserveWatch records the version of a watch event. It reports whether that is behind a known
// version, which may be a lag, and whether it is older than a previous event.
func (v *Versions) ObserveWatch(key network.Key, version string) (behind, back bool) {
	n, err := strconv.ParseUint(version, 10, 64)
	if err != nil {
		return false, false
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	behind = note(&v.known, key, n)
	if back = note(&v.watched, key, n); back {
		v.watched[key] = n
	}
	return behind, back
}

// Newest returns the newest known version, 0 for none. A quorum read that starts after this call
// returns this version or a newer one.
func (v *Versions) Newest(key network.Key) uint64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.known[key]
}

// IsOlder reports whether a version is older than the newest one that was known before the read.
func IsOlder(version string, newest uint64) bool {
	n, err := strconv.ParseUint(version, 10, 64)
	return err == nil && n < newest
}

// ObserveRecovery records the version of a write as the newest, even if it is older than newest, the
// version that was known before the read for that write. A version that became known after that
// read is kept, because another rollback may have reverted the write.
func (v *Versions) ObserveRecovery(key network.Key, version string, newest uint64) {
	v.mu.Lock()
	if v.known[key] <= newest {
		delete(v.known, key)
	}
	v.mu.Unlock()
	v.ObserveResponse(key, version)
}

// Forget drops the versions of a deleted network.
func (v *Versions) Forget(key network.Key) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.known, key)
	delete(v.watched, key)
}
