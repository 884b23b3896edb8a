// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"sync"

	"github.com/patchbay-cni/patchbay/internal/kube"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// networkModels are the newest models by network; safe for concurrent use.
type networkModels struct {
	mu    sync.RWMutex
	byRef map[network.Ref]kube.ParsedNetwork
}

// get returns the model of a network, if there is one.
func (s *networkModels) get(ref network.Ref) (kube.ParsedNetwork, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	m, ok := s.byRef[ref]
	return m, ok
}

// set stores a model and reports whether it differs from the one before.
func (s *networkModels) set(ref network.Ref, m kube.ParsedNetwork) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	old, ok := s.byRef[ref]
	s.byRef[ref] = m
	return !ok || old.Version != m.Version
}

// remove forgets a network and reports whether it was known.
func (s *networkModels) remove(ref network.Ref) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.byRef[ref]
	delete(s.byRef, ref)
	return ok
}

// valid returns the networks without an error, in no order.
func (s *networkModels) valid() []*network.Network {
	s.mu.RLock()
	defer s.mu.RUnlock()
	nets := make([]*network.Network, 0, len(s.byRef))
	for _, m := range s.byRef {
		if m.Err == nil {
			nets = append(nets, m.Network)
		}
	}
	return nets
}
