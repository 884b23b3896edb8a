// SPDX-License-Identifier: Apache-2.0

package ipam

import "errors"

// Errors that a Pool answers with; errors.Is holds through wrapping.
var (
	// ErrOutside says that an address is not in the subnet.
	ErrOutside = errors.New("address is outside of the subnet")
	// ErrUnusable says that an address is the subnet's network or broadcast
	// address.
	ErrUnusable = errors.New("address is the subnet's network or broadcast address")
	// ErrTaken says that an address is in use.
	ErrTaken = errors.New("address is in use")
	// ErrSubnet says that a State was written for another subnet.
	ErrSubnet = errors.New("bitmap is of another subnet")
)
