// SPDX-License-Identifier: Apache-2.0

// Command patchbay-hub is documented in package placement/hub.
package main

import (
	"os"

	"github.com/patchbay-cni/patchbay/internal/app"
	"github.com/patchbay-cni/patchbay/placement/hub"
)

func main() { os.Exit(app.Main("patchbay-hub", hub.Run)) }
