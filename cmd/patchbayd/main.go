// SPDX-License-Identifier: Apache-2.0

// Command patchbayd is the node daemon: it attaches Pods to networks and keeps
// the node's VLAN and VXLAN links. It runs as a DaemonSet, see deployments/.
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
		fmt.Fprintln(os.Stderr, "patchbayd:", err)
		os.Exit(1)
	}
}
