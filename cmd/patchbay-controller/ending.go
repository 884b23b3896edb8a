// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// serve runs the manager until ctx ends. What a part says that was still starting then is
// no failure; that one did not end in time is.
func serve(ctx context.Context, m manager.Manager) error {
	err := m.Start(ctx)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil && !errors.Is(err, context.DeadlineExceeded):
		logr.FromContextOrDiscard(ctx).Info("Ended while parts were starting", "said", err.Error())
		return nil
	}
	return fmt.Errorf("run: %w", err)
}
