// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"sync"

	"github.com/patchbay-cni/patchbay/network"
	"github.com/patchbay-cni/patchbay/objects"
)

// models are the newest models by network; safe for concurrent use.
type models struct {
	mu sync.RWMutex
	m  map[network.Ref]objects.Model
}

// get returns the model of a network, if there is one.
func (s *models) get(ref network.Ref) (objects.Model, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	m, ok := s.m[ref]
	return m, ok
}

// set stores a model and reports whether it differs from the one before.
func (s *models) set(ref network.Ref, m objects.Model) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	old, ok := s.m[ref]
	s.m[ref] = m
	return !ok || old.Version != m.Version
}

// remove forgets a network and reports whether it was known.
func (s *models) remove(ref network.Ref) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.m[ref]
	delete(s.m, ref)
	return ok
}

// valid returns the networks without an error, in no order.
func (s *models) valid() []*network.Network {
	s.mu.RLock()
	defer s.mu.RUnlock()
	nets := make([]*network.Network, 0, len(s.m))
	for _, m := range s.m {
		if m.Err == nil {
			nets = append(nets, m.Network)
		}
	}
	return nets
}
