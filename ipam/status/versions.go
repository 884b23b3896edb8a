// SPDX-License-Identifier: Apache-2.0

package status

import (
	"strconv"
	"sync"

	"github.com/patchbay-cni/patchbay/internal/network"
)

// Versions are the newest resourceVersions of networks that this program has seen, by its
// watch and by its own requests. The API server never answers with an older version than
// it gave before, unless its etcd was restored to older state. Versions are compared as
// numbers (KEP-5504); a text that is no number counts as unknown.
type Versions struct {
	mu sync.Mutex
	// known are the newest by either way, watched those of the watch alone: a watch that
	// is behind for a moment means nothing.
	known, watched map[network.Key]uint64
}

// note keeps a version if it is the newest, and reports whether it is older than one
// of the same way before.
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

// ObserveWatch records a version that the watch gave. It reports whether that is behind what
// is known, as it may be for a moment, and whether the watch itself went back.
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

// Newest returns the newest version known now, 0 for none. A read that begins after
// that, with quorum, has this one or a newer.
func (v *Versions) Newest(key network.Key) uint64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.known[key]
}

// IsOlder reports whether a version is older than what was known before it was read.
func IsOlder(version string, newest uint64) bool {
	n, err := strconv.ParseUint(version, 10, 64)
	return err == nil && n < newest
}

// ObserveRecovery takes the version of a write as the newest, whatever was known before the read
// that the write is made from. What the watch gave after that stays: the object may have
// gone back once more, and the write with it.
func (v *Versions) ObserveRecovery(key network.Key, version string, newest uint64) {
	v.mu.Lock()
	if v.known[key] <= newest {
		delete(v.known, key)
	}
	v.mu.Unlock()
	v.ObserveResponse(key, version)
}

// Forget is for a network that is gone.
func (v *Versions) Forget(key network.Key) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.known, key)
	delete(v.watched, key)
}
