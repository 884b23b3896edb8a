// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"errors"
	"fmt"
)

// Reasons of the Events that a refused Pod gets: one word, for people to search
// and programs to match.
const (
	// ReasonInterfaces: the annotation is wrong, or does not go with a network.
	ReasonInterfaces = "InvalidInterfaces"
	// ReasonNetwork: a network is missing, invalid or being deleted.
	ReasonNetwork = "NetworkNotReady"
	// ReasonTenant: the network is not for this namespace.
	ReasonTenant = "TenantNotAllowed"
	// ReasonAddress: an address could not be claimed.
	ReasonAddress = "AddressNotAvailable"
	// ReasonAttach: an interface could not be made.
	ReasonAttach = "AttachFailed"
)

// reasonError is an error with a reason for the Pod's Event.
type reasonError struct {
	reason string
	err    error
}

func withReason(reason string, err error) error { return &reasonError{reason: reason, err: err} }

func withReasonf(reason, format string, args ...any) error {
	return &reasonError{reason: reason, err: fmt.Errorf(format, args...)}
}

// Error is the cause's message.
func (r *reasonError) Error() string { return r.err.Error() }

// Unwrap returns the cause.
func (r *reasonError) Unwrap() error { return r.err }

// Reason is for the Event.
func (r *reasonError) Reason() string { return r.reason }

// retryableDeadline says of an error by a deadline that trying again helps.
func retryableDeadline(err error) error {
	if errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, ErrTryAgain) {
		return fmt.Errorf("%w: %w", ErrTryAgain, err)
	}
	return err
}

// addError is what ADD answers: an end by DEL is told from failures.
func addError(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); errors.Is(cause, ErrDeleted) && !errors.Is(err, ErrDeleted) {
		return fmt.Errorf("%w: %w", ErrDeleted, err)
	}
	return retryableDeadline(err)
}
