// SPDX-License-Identifier: Apache-2.0

// Command patchbay-controller is documented in package controller.
package main

import (
	"os"

	"github.com/patchbay-cni/patchbay/controller"
	"github.com/patchbay-cni/patchbay/internal/app"
)

func main() { os.Exit(app.Main("patchbay-controller", controller.Run)) }
