// SPDX-License-Identifier: Apache-2.0

// Command patchbay-controller does what the cluster needs once, not on each node:
// it frees addresses that nobody covers, cleans up after nodes that are gone, and
// says on each network how its addresses are. It runs as a Deployment of two
// replicas, of which one leads, see deployments/.
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
	err := runCommand(ctx, os.Args[1:], os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "patchbay-controller:", err)
		os.Exit(1)
	}
}
