// SPDX-License-Identifier: Apache-2.0

// Command deviceplugin advertises virtual functions to kubelet; see package deviceplugin. It runs on a
// node of the lab, or in a Pod with hostNetwork and kubelet's folder of device plugins:
//
//	deviceplugin -resource example.com/sriov_ens4=ens4 -resource example.com/dpdk=0000:02:10.0,0000:02:10.2
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/patchbay-cni/patchbay/test/deviceplugin"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := deviceplugin.Main(ctx, os.Args[1:], os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "deviceplugin:", err)
		os.Exit(1)
	}
}
