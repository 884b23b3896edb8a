// SPDX-License-Identifier: Apache-2.0

// Command patchbay-agent is documented in package placement/agent.
package main

import (
	"os"

	"github.com/patchbay-cni/patchbay/internal/app"
	"github.com/patchbay-cni/patchbay/placement/agent"
)

func main() { os.Exit(app.Main("patchbay-agent", agent.Run)) }
