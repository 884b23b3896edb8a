// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/patchbay-cni/patchbay/internal/app"
	"github.com/patchbay-cni/patchbay/internal/logging"
	"github.com/patchbay-cni/patchbay/internal/version"
)

// Run is the controller from its arguments to its end; logs go to stderr. It
// returns an error when it loses the lease: the process must end then.
func Run(ctx context.Context, args []string, _, stderr io.Writer) error {
	o, err := parseOptions(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	if o.version {
		_, err := fmt.Fprintln(stderr, version.String())
		return err
	}
	setGCPercent()
	ctx, flush := logging.NewContext(ctx, o.debug, stderr)
	defer flush()
	logr.FromContextOrDiscard(ctx).Info("Starting", "version", version.String())
	cfg, err := app.RESTConfig(o.kubeconfig)
	if err != nil {
		return fmt.Errorf("read API server's address and credentials: %w", err)
	}
	m, err := newManager(ctx, cfg, o)
	if err != nil {
		return err
	}
	return runManager(ctx, m)
}

// runManager runs the manager until ctx ends. What a part says that was still starting then is
// no failure; that one did not end in time is.
func runManager(ctx context.Context, m manager.Manager) error {
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
