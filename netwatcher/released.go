// SPDX-License-Identifier: Apache-2.0

package netwatcher

import (
	"slices"

	v1 "github.com/patchbay-cni/patchbay/api/v1"
)

// Released is to be called when a Pod has left its links: one that waits for that can
// be changed or removed now. It does not wait, and costs nothing while none does.
func (r *Reconciler) Released() {
	r.mu.Lock()
	told := r.wrote.told
	r.mu.Unlock()
	if told != nil && slices.ContainsFunc(told.Links, func(l v1.HostLink) bool { return l.State == v1.LinkKept }) {
		r.Trigger()
	}
}
