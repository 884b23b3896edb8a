// SPDX-License-Identifier: Apache-2.0

// Command kubectl-patchbay is a kubectl plugin: with it on the PATH, `kubectl
// patchbay` asks Patchbay for what no manifest says. See docs/api.md.
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
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}
