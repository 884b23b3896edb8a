// SPDX-License-Identifier: Apache-2.0

// Command patchbayd is documented in package daemon.
package main

import (
	"os"

	"github.com/patchbay-cni/patchbay/daemon"
	"github.com/patchbay-cni/patchbay/internal/app"
)

func main() { os.Exit(app.Main("patchbayd", daemon.Run)) }
