// SPDX-License-Identifier: Apache-2.0

// Command patchbay-agent runs in a workload cluster: it fetches from the hub what is
// placed there, applies it, and reports back. It dials the hub, and nothing dials it.
// See package placement for the contract, and deployments/placement/agent.
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
		fmt.Fprintln(os.Stderr, "patchbay-agent:", err)
		os.Exit(1)
	}
}
