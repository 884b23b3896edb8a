// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/patchbay-cni/patchbay/daemon/attach"
)

// portError gives an API server's error the meaning that attach's ports know:
// ErrNotFound, or ErrTryAgain when the request was not refused for good.
func portError(err error) error {
	switch {
	case err == nil, errors.Is(err, attach.ErrNotFound), errors.Is(err, attach.ErrTryAgain):
		return err
	case apierrors.IsNotFound(err):
		return fmt.Errorf("%w: %w", attach.ErrNotFound, err)
	case apierrors.IsInvalid(err), apierrors.IsForbidden(err), apierrors.IsBadRequest(err):
		return err
	}
	return fmt.Errorf("%w: %w", attach.ErrTryAgain, err)
}

// namespaceGone reports whether a create failed because its namespace is being
// deleted, or is deleted: it cannot succeed any more. A kind that is not found, as
// while its definition is installed anew, comes back.
func namespaceGone(err error) bool {
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return true
	}
	var status apierrors.APIStatus
	return apierrors.IsNotFound(err) && errors.As(err, &status) &&
		status.Status().Details != nil && status.Status().Details.Kind == "namespaces"
}

// watchError says what could not be watched. At the daemon's end that is anything whose
// informer has stopped already; then it is the error of ctx.
func watchError(ctx context.Context, what string, err error) error {
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return fmt.Errorf("watch %s: %w", what, err)
}
