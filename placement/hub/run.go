// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"

	"github.com/patchbay-cni/patchbay/internal/app"
	"github.com/patchbay-cni/patchbay/internal/logging"
	"github.com/patchbay-cni/patchbay/internal/version"
)

// Run is the program from its arguments to its end; logs go to stderr. It returns an
// error when it loses the lease: the process must end then.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if len(args) > 0 && args[0] == "up" {
		return runUp(ctx, args[1:], stdout, stderr)
	}
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
	ctx, flush := logging.NewContext(ctx, o.debug, stderr)
	defer flush()
	cfg, err := app.RESTConfig(o.kubeconfig)
	if err != nil {
		return fmt.Errorf("flag --kubeconfig: want the file with the hub's API server and credentials, "+
			"or `patchbay-hub up` to try it out without any: %w", err)
	}
	return runUntilStopped(ctx, func(ctx context.Context) error { return runHub(ctx, cfg, o) })
}

// runUntilStopped runs serve until ctx ends, which is no error whatever serve was about: it may have
// come no further than its first question. What nobody answers ends with the process.
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
		logr.FromContextOrDiscard(ctx).Info("Ended before all was done", "cause", err.Error())
	}
	return nil
}

// shutdownTimeout is how long serve may take to end.
const shutdownTimeout = gracefulShutdownTimeout + 5*time.Second

// errShutdownTimeout says that something was not given up.
var errShutdownTimeout = errors.New("not within " + shutdownTimeout.String())

// runHub runs the controllers until ctx ends.
func runHub(ctx context.Context, cfg *rest.Config, o *options) error {
	logr.FromContextOrDiscard(ctx).Info("Starting", "version", version.String())
	m, err := newManager(ctx, cfg, o)
	if err != nil {
		return err
	}
	if err := m.Start(ctx); err != nil {
		return fmt.Errorf("run: %w", err)
	}
	return nil
}
