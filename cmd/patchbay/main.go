// SPDX-License-Identifier: Apache-2.0

// Command patchbay is the CNI plugin. Container runtimes execute it with a command in CNI_COMMAND
// and a network configuration on standard input. It sends both to the node daemon and prints
// the answer.
package main

import (
	"context"
	"os"

	"github.com/patchbay-cni/patchbay/cni/plugin"
)

func main() {
	os.Exit(plugin.NewProcess().Run(context.Background()))
}
