// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"errors"

	"github.com/patchbay-cni/patchbay/daemon/attach"
	"github.com/patchbay-cni/patchbay/ipam/claims"
	"github.com/patchbay-cni/patchbay/network"
)

// reasonOther is the reason of an Event about an error of no known sort.
const reasonOther = "NetworkAttachmentFailed"

// reason is one word for an error, the same for each occurrence, to select
// Events by. The first row that fits counts.
func reason(err error) string {
	for _, r := range []struct {
		sort   error
		reason string
	}{
		{claims.ErrExhausted, "AddressesExhausted"},
		{claims.ErrTaken, "AddressTaken"},
		{claims.ErrOutside, "AddressOutsideNetwork"},
		{claims.ErrNoSubnet, "NetworkWithoutSubnet"},
		{claims.ErrDeleting, "NetworkDeleting"},
		{claims.ErrSubnetInUse, "SubnetChanged"},
		{attach.ErrConflict, "AddressInUse"},
		{attach.ErrInvalidRequest, "InvalidRequest"},
		{network.ErrInvalid, "InvalidNetwork"},
		{attach.ErrNotFound, "NetworkNotFound"},
		{attach.ErrTryAgain, "NetworkNotReady"},
	} {
		if errors.Is(err, r.sort) {
			return r.reason
		}
	}
	return reasonOther
}
