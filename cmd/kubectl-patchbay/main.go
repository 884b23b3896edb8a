// SPDX-License-Identifier: Apache-2.0

// Command kubectl-patchbay is documented in package internal/kubectl.
package main

import (
	"os"

	"github.com/patchbay-cni/patchbay/internal/app"
	"github.com/patchbay-cni/patchbay/internal/kubectl"
)

func main() { os.Exit(app.Main("error", kubectl.Run)) }
