// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"

	"github.com/patchbay-cni/patchbay/logging"
	"github.com/patchbay-cni/patchbay/version"
)

// run is the daemon from its arguments to its end; logs go to stderr.
func run(ctx context.Context, args []string, stderr io.Writer) error {
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
	ctx, flush := logging.Into(ctx, o.debug, stderr)
	defer flush()
	d, err := newDaemon(ctx, o)
	if err != nil {
		return err
	}
	return errors.Join(d.run(ctx), d.close())
}
