// SPDX-License-Identifier: Apache-2.0

package attach

// Waiting returns the number of requests that run or wait for a sandbox.
func (s *Service) Waiting(id string) int {
	s.locks.mu.Lock()
	defer s.locks.mu.Unlock()
	if lock := s.locks.byID[id]; lock != nil {
		return len(lock.users)
	}
	return 0
}
