// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"

	"github.com/patchbay-cni/patchbay/internal/app"
	"github.com/patchbay-cni/patchbay/internal/logging"
	"github.com/patchbay-cni/patchbay/internal/manager"
	"github.com/patchbay-cni/patchbay/internal/version"
)

// Run runs the operator. Logs go to stderr. It returns an error when the operator loses its Lease: the
// process must end then.
func Run(ctx context.Context, args []string, _, stderr io.Writer) error {
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
	logr.FromContextOrDiscard(ctx).Info("Starting", "version", version.String())
	cfg, err := app.RESTConfig(o.kubeconfig)
	if err != nil {
		return fmt.Errorf("read API server's address and credentials: %w", err)
	}
	m, err := newManager(ctx, cfg, o)
	if err != nil {
		return err
	}
	return manager.Run(ctx, m)
}
