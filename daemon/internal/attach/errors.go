// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"errors"
	"fmt"
)

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
