// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"strconv"
	"sync"
)

// versions are the newest resourceVersions that this node has seen of networks,
// by its watch and by its own requests. The API server never answers with an older
// one than it gave before, unless its etcd was restored to older state. They can be
// compared as numbers (KEP-5504); a text that is none counts as unknown.
type versions struct {
	mu sync.Mutex
	// known are the newest by either way, watched those of the watch alone: it is
	// behind a moment, and that is no sign of anything.
	known, watched map[Key]uint64
}

// note keeps a version if it is the newest, and reports whether it is older than one
// of the same way before.
func note(of *map[Key]uint64, key Key, n uint64) (older bool) {
	if *of == nil {
		*of = map[Key]uint64{}
	}
	older = n < (*of)[key]
	(*of)[key] = max(n, (*of)[key])
	return older
}

// saw notes the version of a read or a write.
func (v *versions) saw(key Key, version string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if n, err := strconv.ParseUint(version, 10, 64); err == nil {
		note(&v.known, key, n)
	}
}

// watch notes a version that the watch gave. It reports whether it is behind what is
// known, which it may be for a moment, and whether the watch itself has gone back.
func (v *versions) watch(key Key, version string) (behind, back bool) {
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

// newest returns the newest version known now, 0 for none. A read that begins after
// that, with quorum, has this one or a newer.
func (v *versions) newest(key Key) uint64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.known[key]
}

// older reports whether a version is older than what was known before it was read.
func older(version string, newest uint64) bool {
	n, err := strconv.ParseUint(version, 10, 64)
	return err == nil && n < newest
}

// restart takes the version of a write as the newest, whatever was known before the read
// that the write is made from. What the watch gave after that stays: the object may have
// gone back once more, and the write with it.
func (v *versions) restart(key Key, version string, newest uint64) {
	v.mu.Lock()
	if v.known[key] <= newest {
		delete(v.known, key)
	}
	v.mu.Unlock()
	v.saw(key, version)
}

// forget is for a network that is gone.
func (v *versions) forget(key Key) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.known, key)
	delete(v.watched, key)
}
