// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"errors"
	"fmt"
)

// Reasons of a failed ADD.
const (
	// ReasonInterfaces means that the annotation is invalid, or does not match a network.
	ReasonInterfaces = "InvalidInterfaces"
	// ReasonNetwork means that a network is missing, invalid or being deleted.
	ReasonNetwork = "NetworkNotReady"
	// ReasonTenant means that the network does not allow the namespace.
	ReasonTenant = "TenantNotAllowed"
	// ReasonAddress means that an address could not be claimed.
	ReasonAddress = "AddressNotAvailable"
	// ReasonAttach means that an interface could not be attached.
	ReasonAttach = "AttachFailed"
)

// reasonError is an error with one of the reasons above.
type reasonError struct {
	reason string
	err    error
}

// withReason returns err with a reason.
func withReason(reason string, err error) error { return &reasonError{reason: reason, err: err} }

// withReasonf returns a formatted error with a reason.
func withReasonf(reason, format string, args ...any) error {
	return &reasonError{reason: reason, err: fmt.Errorf(format, args...)}
}

// Error returns the message of the cause.
func (r *reasonError) Error() string { return r.err.Error() }

// Unwrap returns the cause.
func (r *reasonError) Unwrap() error { return r.err }

// Reason returns the reason.
func (r *reasonError) Reason() string { return r.reason }

// retryableDeadline adds ErrTryAgain to the error of a deadline.
func retryableDeadline(err error) error {
	if errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, ErrTryAgain) {
		return fmt.Errorf("%w: %w", ErrTryAgain, err)
	}
	return err
}

// addError returns the error of ADD. It adds ErrDeleted if a DEL canceled the ADD.
func addError(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); errors.Is(cause, ErrDeleted) && !errors.Is(err, ErrDeleted) {
		return fmt.Errorf("%w: %w", ErrDeleted, err)
	}
	return retryableDeadline(err)
}
