// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"

	"github.com/patchbay-cni/patchbay/internal/app"
	"github.com/patchbay-cni/patchbay/internal/logging"
	"github.com/patchbay-cni/patchbay/internal/version"
)

// Run runs the hub until ctx ends. It logs to stderr. It returns an error when it loses its Lease: then the
// process must end.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if len(args) > 0 && args[0] == "up" {
		return runUp(ctx, args[1:], stdout, stderr)
	}
	o, err := parseOptions(args, stderr)
	if errors.Is(err, pflag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	if o.version {
		_, err := fmt.Fprintln(stderr, version.String())
		return err
	}
	ctx, flush := logging.NewContext(ctx, o.debug, stderr)
	defer flush()
	cfg, err := app.RESTConfig(o.kubeconfig)
	if err != nil {
		return fmt.Errorf("flag --kubeconfig: must be the file with the hub's API server and credentials, "+
			"or use `patchbay-hub up` for a trial: %w", err)
	}
	return runUntilStopped(ctx, func(ctx context.Context) error { return runHub(ctx, cfg, o) })
}

// runUntilStopped runs serve until ctx ends, which is no error, even if serve has not finished its start. It
// waits at most shutdownTimeout for serve.
func runUntilStopped(ctx context.Context, serve func(context.Context) error) error {
	done := make(chan error, 1)
	go func() { done <- serve(ctx) }()
	var err error
	select {
	case err = <-done:
		if ctx.Err() == nil {
			return err
		}
	case <-ctx.Done():
		select {
		case err = <-done:
		case <-time.After(shutdownTimeout):
			err = errShutdownTimeout
		}
	}
	if err != nil {
		logr.FromContextOrDiscard(ctx).Info("Stopped with an error", "cause", err.Error())
	}
	return nil
}

// shutdownTimeout is how long serve may take to return.
const shutdownTimeout = gracefulShutdownTimeout + 5*time.Second

// errShutdownTimeout is the cause when serve has not returned in time.
var errShutdownTimeout = errors.New("did not stop within " + shutdownTimeout.String())

// runHub runs the controllers until ctx ends.
func runHub(ctx context.Context, cfg *rest.Config, o *options) error {
	logr.FromContextOrDiscard(ctx).Info("Starting", "version", version.String())
	m, err := newManager(ctx, cfg, o)
	if err != nil {
		return err
	}
	if err := m.Start(ctx); err != nil {
		return fmt.Errorf("run the manager: %w", err)
	}
	return nil
}
