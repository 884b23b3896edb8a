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
		"Exhausted":   {"Callers wrap the errors of the allocator.", fmt.Errorf("a: %w", allocator.ErrExhausted), "AddressesExhausted"},
		"Taken":       {"Another Pod must end first.", allocator.ErrTaken, "AddressTaken"},
		"Reserved":    {"A gateway's address is no Pod's.", allocator.ErrOutside, "AddressOutsideNetwork"},
		"NoSubnet":    {"The network has the other family only.", allocator.ErrNoSubnet, "NetworkWithoutSubnet"},
		"Deleting":    {"The allocator reads a newer object than the cache has.", allocator.ErrDeleting, "NetworkDeleting"},
		"InDeletion":  {"The cache knows of the deletion.", attach.ErrNetworkDeleting, "NetworkDeleting"},
		"OtherSubnet": {"Pods have addresses of the subnet before.", allocator.ErrSubnetInUse, "SubnetChanged"},
		"Conflict":    {"A machine outside of the cluster has the address.", attach.ErrConflict, "AddressInUse"},
		"NoDevice":    {"The Pod's owner requests the resource.", attach.ErrNoDevice, "DeviceNotAllocated"},
		"DeviceInUse": {"A retry helps only after the other Pod has ended.", fmt.Errorf("%w: %w", attach.ErrTryAgain, attach.ErrDeviceInUse), "DeviceInUse"},
		"Request":     {"The Pod's owner corrects the annotation, and the netadmin the network.", fmt.Errorf("%w: %w", attach.ErrInvalidAnnotation, &network.InvalidError{}), "InvalidAnnotations"},
		"Foreign":     {"The network is valid, and not for the Pod's namespace.", fmt.Errorf("%w: %w", attach.ErrNotAllowed, &network.InvalidError{}), "NetworkNotAllowed"},
		"Invalid":     {"A field of the network is invalid.", &network.InvalidError{}, "InvalidNetwork"},
		"NotFound":    {"The network does not exist.", attach.ErrNotFound, "NetworkNotFound"},
		"NoDefault":   {"The Pod's owner requests no network, so that the node is to blame.", attach.ErrNoDefaultNetwork, "NoDefaultNetwork"},
		"NotReady":    {"A retry may help.", attach.ErrTryAgain, "NetworkNotReady"},
		"FirstRow":    {"A specific error counts before a general one.", fmt.Errorf("%w: %w", attach.ErrTryAgain, allocator.ErrDeleting), "NetworkDeleting"},
		"Other":       {"An error that no row has needs a reason too.", errors.New("x"), "NetworkAttachmentFailed"},
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
