// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"strings"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/patchbay-cni/patchbay/cni/wire"
	"github.com/patchbay-cni/patchbay/daemon/attach"
)

// refuse is the answer to a request that failed.
func refuse(err error) *wire.Response {
	// Joined errors stand on lines of their own; kubelet's Events have one.
	msg := strings.ReplaceAll(err.Error(), "\n", "; ")
	return &wire.Response{Error: &wire.Error{Code: code(err), Msg: msg}}
}

// code is the CNI error code for an error. What waiting helps comes first: an
// error may be several, when undoing failed too.
func code(err error) uint {
	ours, delegates := (*wire.Error)(nil), (*types.Error)(nil)
	switch {
	case errors.Is(err, attach.ErrTryAgain),
		errors.Is(err, context.DeadlineExceeded),
		errors.Is(err, context.Canceled):
		return wire.CodeTryAgain
	case errors.As(err, &ours):
		return ours.Code
	case errors.Is(err, attach.ErrInvalidRequest):
		return wire.CodeEnv
	// A delegate's other codes are about its own input, which we wrote.
	case errors.As(err, &delegates) && delegates.Code == types.ErrTryAgainLater:
		return wire.CodeTryAgain
	}
	return wire.CodeFailed
}
