// SPDX-License-Identifier: Apache-2.0

package attach

// Waiting is how many requests have or wait for a sandbox.
func (s *Service) Waiting(id string) int {
	s.sandboxes.mu.Lock()
	defer s.sandboxes.mu.Unlock()
	if box := s.sandboxes.byID[id]; box != nil {
		return box.users
	}
	return 0
}
