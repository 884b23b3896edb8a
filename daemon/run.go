// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/pflag"

	"github.com/patchbay-cni/patchbay/internal/logging"
	"github.com/patchbay-cni/patchbay/internal/version"
)

// Run runs the daemon with the flags in args until ctx ends. It logs to stderr. If the first argument is
// "preflight", it prints facts about the node to stdout instead.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if len(args) > 0 && args[0] == preflightCommand {
		err := runPreflight(ctx, args[1:], stdout, stderr)
		if errors.Is(err, pflag.ErrHelp) {
			return nil
		}
		return err
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
	return runDaemon(ctx, o, stderr)
}

// runDaemon runs the daemon until ctx ends.
func runDaemon(ctx context.Context, o *options, stderr io.Writer) error {
	ctx, flush := logging.NewContext(ctx, o.debug, stderr)
	defer flush()
	d, err := newDaemon(ctx, o)
	if err != nil {
		return ignoreCancellation(ctx, err)
	}
	return errors.Join(d.run(ctx), d.close())
}

// ignoreCancellation returns err, and nil if err is only the error of ctx: a stop on request is no error.
func ignoreCancellation(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return nil
	}
	return err
}
