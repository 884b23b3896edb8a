// SPDX-License-Identifier: Apache-2.0

// Command coredns is CoreDNS with the plugins that the tests need: a cluster's DNS
// server that answers from the API server, and nothing else.
package main

import (
	"github.com/coredns/coredns/coremain"

	// Plugins register themselves; CoreDNS's own list has an order for each.
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/kubernetes"
)

func main() { coremain.Run() }
