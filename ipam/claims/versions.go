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
	of map[Key]uint64
}

// saw notes a version and reports whether it is older than one seen before.
func (v *versions) saw(key Key, version string) (older bool) {
	n, err := strconv.ParseUint(version, 10, 64)
	if err != nil {
		return false
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if n < v.of[key] {
		return true
	}
	if v.of == nil {
		v.of = map[Key]uint64{}
	}
	v.of[key] = n
	return false
}

// older reports whether a version, read with quorum, is older than one seen before.
func (v *versions) older(key Key, version string) bool {
	n, err := strconv.ParseUint(version, 10, 64)
	v.mu.Lock()
	defer v.mu.Unlock()
	return err == nil && n < v.of[key]
}

// restart takes a version as the newest, whatever was seen before.
func (v *versions) restart(key Key, version string) {
	v.forget(key)
	v.saw(key, version)
}

// forget is for a network that is gone.
func (v *versions) forget(key Key) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.of, key)
}
