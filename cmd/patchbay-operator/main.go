// SPDX-License-Identifier: Apache-2.0

// Command patchbay-operator installs Patchbay as an Installation says; see package operator.
package main

import (
	"os"

	"github.com/patchbay-cni/patchbay/internal/app"
	"github.com/patchbay-cni/patchbay/operator"
)

func main() { os.Exit(app.Main("patchbay-operator", operator.Run)) }
