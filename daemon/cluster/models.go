// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/network"
)

// version tells two readings of an object's spec apart. Writes of status leave
// all of it alone.
type version struct {
	uid        types.UID
	generation int64
	deleting   bool
}

// versionOf reads an object's metadata.
func versionOf(obj client.Object) version {
	return version{uid: obj.GetUID(), generation: obj.GetGeneration(), deleting: obj.GetDeletionTimestamp() != nil}
}

// model is what a network object meant at one version: a validated network, or
// what is wrong with it.
type model struct {
	version version
	net     *network.Network
	err     error
}

// models are the newest models by network; safe for concurrent use.
type models struct {
	mu sync.RWMutex
	m  map[network.Ref]model
}

// get returns the model of a network, if there is one.
func (s *models) get(ref network.Ref) (model, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	m, ok := s.m[ref]
	return m, ok
}

// set stores a model and reports whether it differs from the one before.
func (s *models) set(ref network.Ref, m model) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	old, ok := s.m[ref]
	s.m[ref] = m
	return !ok || old.version != m.version
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
		if m.err == nil {
			nets = append(nets, m.net)
		}
	}
	return nets
}
