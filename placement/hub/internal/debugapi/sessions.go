// SPDX-License-Identifier: Apache-2.0

package debugapi

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/patchbay-cni/patchbay/placement/internal/tunnel"
)

// sessions are the connections of agents to this replica. The newest one of a cluster counts.
type sessions struct {
	mu        sync.Mutex
	byCluster map[string]attached
}

// attached is a connection, and the UID of the Cluster that it is for.
type attached struct {
	*tunnel.Session

	uid types.UID
}

// add stores a connection, and closes the one before. It tells whether that was open.
func (s *sessions) add(cluster string, a attached) (replaced bool) {
	before, ok := s.swap(cluster, a)
	if !ok {
		return false
	}
	select {
	case <-before.Closed():
	default:
		replaced = true
	}
	_ = before.Close() // not under the mutex: it may take seconds
	return replaced
}

func (s *sessions) swap(cluster string, a attached) (before attached, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byCluster == nil {
		s.byCluster = map[string]attached{}
	}
	before, ok = s.byCluster[cluster]
	s.byCluster[cluster] = a
	return before, ok
}

// get returns the open connection of a cluster. A Cluster that was created again is another one.
func (s *sessions) get(cluster string, uid types.UID) (*tunnel.Session, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a, ok := s.byCluster[cluster]
	if !ok || a.uid != uid {
		return nil, false
	}
	select {
	case <-a.Closed():
		return nil, false
	default:
		return a.Session, true
	}
}

// remove forgets a connection, unless a newer one has replaced it.
func (s *sessions) remove(cluster string, a attached) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byCluster[cluster] == a {
		delete(s.byCluster, cluster)
	}
}
