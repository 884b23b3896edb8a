// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"fmt"
	"testing"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// The reason tells which of the two networks' fields to change.
func TestConflictReasons(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		err    error
		want   string
	}{
		"Link":   {"Another NetworkID, VLAN or VXLAN resolves it.", network.ErrLinkTaken, "LinkTaken"},
		"Parent": {"The same type, or another parent, resolves it.", network.ErrParentShared, "ParentShared"},
		"Pool":   {"Disjoint pools resolve it.", network.ErrPoolOverlap, "PoolOverlap"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := conflictCondition(&v1.DanmNet{}, fmt.Errorf("DanmNet/ns/b: %w", tc.err))
			if c.Reason != tc.want {
				t.Errorf("%s: got %s, want %s", tc.reason, c.Reason, tc.want)
			}
		})
	}
}
