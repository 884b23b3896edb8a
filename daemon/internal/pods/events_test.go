// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"errors"
	"fmt"
	"testing"

	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam/allocator"
)

func TestEventReason(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		err    error
		want   string
	}{
		"Wrapped":  {"Callers wrap the errors of the allocator.", fmt.Errorf("a: %w", allocator.ErrExhausted), "AddressesExhausted"},
		"FirstRow": {"A specific error counts before a general one.", fmt.Errorf("%w: %w", attach.ErrTryAgain, allocator.ErrDeleting), "NetworkDeleting"},
		"Invalid":  {"A field of the network or the annotation is invalid.", &network.InvalidError{}, "InvalidNetwork"},
		"Other":    {"An error that no row has needs a reason too.", errors.New("x"), "NetworkAttachmentFailed"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := EventReason(tc.err); got != tc.want {
				t.Errorf("%s: got %s, want %s", tc.reason, got, tc.want)
			}
		})
	}
}
