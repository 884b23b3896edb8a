// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"

	"github.com/patchbay-cni/patchbay/internal/logging"
	"github.com/patchbay-cni/patchbay/internal/version"
)

// Run is the daemon from its arguments to its end; logs go to stderr.
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
	return runDaemon(ctx, o, stderr)
}

// runDaemon is the daemon from its options to its end.
func runDaemon(ctx context.Context, o *options, stderr io.Writer) error {
	ctx, flush := logging.NewContext(ctx, o.debug, stderr)
	defer flush()
	d, err := newDaemon(ctx, o)
	if err != nil {
		return ignoreCancellation(ctx, err)
	}
	return errors.Join(d.run(ctx), d.close())
}

// ignoreCancellation is err, unless that is only what ctx ended: to end when told to is no error.
func ignoreCancellation(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return nil
	}
	return err
}
