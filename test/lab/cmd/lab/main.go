// SPDX-License-Identifier: Apache-2.0

// Command lab runs a Kubernetes cluster with bare-metal nodes on one machine; see
// package lab. "lab help" lists its commands.
//
// It is also the init of the nodes that it boots.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/patchbay-cni/patchbay/test/lab/guest"
)

func main() {
	if guest.Inside(os.Args[1:]) {
		if err := guest.Main(os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, "guest:", err)
			os.Exit(1)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	code := run(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}
