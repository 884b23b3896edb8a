// SPDX-License-Identifier: Apache-2.0

package attach

// Waiting is how many requests have or wait for a sandbox.
func (s *Service) Waiting(id string) int {
	s.locks.mu.Lock()
	defer s.locks.mu.Unlock()
	if box := s.locks.byID[id]; box != nil {
		return box.users
	}
	return 0
}
