// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// maxWaitingDeletions bounds the deletions that wait at the same time. Each occupies a request of
	// the API server meanwhile.
	maxWaitingDeletions = 8
	// maxWaitingInNamespace bounds those of one namespace, so that a tenant leaves room for others.
	maxWaitingInNamespace = 2
)

// waitSlots bounds the deletions that wait: one of each network, and some of each namespace.
type waitSlots struct {
	mu      sync.Mutex
	waiting map[types.UID]string // the namespaces of networks
}

// take takes a slot for the deletion of a network, if there is one. The caller releases it.
func (s *waitSlots) take(obj client.Object) (release func(), ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	inNamespace := 0
	for _, namespace := range s.waiting {
		if namespace != "" && namespace == obj.GetNamespace() {
			inNamespace++
		}
	}
	if _, waits := s.waiting[obj.GetUID()]; waits || len(s.waiting) >= maxWaitingDeletions || inNamespace >= maxWaitingInNamespace {
		return nil, false
	}
	if s.waiting == nil {
		s.waiting = map[types.UID]string{}
	}
	s.waiting[obj.GetUID()] = obj.GetNamespace()
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.waiting, obj.GetUID())
	}, true
}
