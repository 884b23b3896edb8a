// SPDX-License-Identifier: Apache-2.0

// Command patchbay-hub places objects of a hub's API server on workload clusters. It
// runs beside an API server that runs no workload controllers; `patchbay-hub up` starts
// such a one, for trying it out.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := runCommand(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "patchbay-hub:", err)
		os.Exit(1)
	}
}
