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

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
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
	kinds, err := app.NewKindChecker(cfg, v1alpha1.SchemeGroupVersion(), "deployments/placement/crds",
		"Assignment", "Cluster", "ClusterPlacement", "Customization", "Placement", "Work")
	if err != nil {
		return err
	}
	kinds.Log = logr.FromContextOrDiscard(ctx)
	if err := awaitKinds(ctx, kinds, o.healthAddress); err != nil {
		return err
	}
	m, err := newManager(ctx, cfg, o, kinds)
	if err != nil {
		return err
	}
	if err := m.Start(ctx); err != nil {
		return fmt.Errorf("run the manager: %w", err)
	}
	return nil
}

// kindsPollInterval is the time between two checks whether the API server serves the kinds.
const kindsPollInterval = 200 * time.Millisecond

// awaitKinds waits until the API server serves the kinds, without which no manager can be made. Meanwhile it
// serves health checks, which name the missing kinds.
func awaitKinds(ctx context.Context, kinds *app.KindChecker, healthAddress string) error {
	if kinds.Check(ctx) == nil {
		return nil
	}
	health, err := app.ListenHealth(healthAddress, kinds.Check)
	if err != nil {
		return err
	}
	serving, stop := context.WithCancel(ctx)
	defer stop()
	done := make(chan error, 1)
	go func() { done <- health.Start(serving) }()
	tick := time.NewTicker(kindsPollInterval)
	defer tick.Stop()
	for kinds.Check(ctx) != nil && ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
	stop()
	return errors.Join(<-done, ctx.Err())
}
