// SPDX-License-Identifier: Apache-2.0

package networkcache

import (
	"sync"

	"github.com/patchbay-cni/patchbay/internal/kube"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// networkModels has the newest model of each network. It is safe for concurrent use.
type networkModels struct {
	mu    sync.RWMutex
	byRef map[network.Ref]kube.ParsedNetwork
}

// get returns the model of a network, and false when there is none.
func (s *networkModels) get(ref network.Ref) (kube.ParsedNetwork, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	m, ok := s.byRef[ref]
	return m, ok
}

// set stores a model and reports whether it differs from the previous one.
func (s *networkModels) set(ref network.Ref, m kube.ParsedNetwork) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	old, ok := s.byRef[ref]
	s.byRef[ref] = m
	return !ok || old.Version != m.Version
}

// remove deletes a model and reports whether there was one.
func (s *networkModels) remove(ref network.Ref) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.byRef[ref]
	delete(s.byRef, ref)
	return ok
}

// valid returns the models without an error, in no order.
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
