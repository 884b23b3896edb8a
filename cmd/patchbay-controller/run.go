// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/patchbay-cni/patchbay/logging"
	"github.com/patchbay-cni/patchbay/version"
)

// runCommand is the controller from its arguments to its end; logs go to stderr. It
// returns an error when it loses the lease: the process must end then.
func runCommand(ctx context.Context, args []string, stderr io.Writer) error {
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
	cfg, err := restConfig(o.kubeconfig)
	if err != nil {
		return fmt.Errorf("read API server's address and credentials: %w", err)
	}
	m, err := newManager(ctx, cfg, o)
	if err != nil {
		return err
	}
	return runManager(ctx, m)
}

// restConfig is the service account's, or that of a kubeconfig.
func restConfig(kubeconfig string) (*rest.Config, error) {
	if kubeconfig == "" {
		return rest.InClusterConfig()
	}
	return clientcmd.BuildConfigFromFlags("", kubeconfig)
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
