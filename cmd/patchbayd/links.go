// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"net/netip"

	"github.com/patchbay-cni/patchbay/daemon/attach"
	"github.com/patchbay-cni/patchbay/network"
	"github.com/patchbay-cni/patchbay/objects"
)

// podLinks tells netwatcher which host links Pods are on, from the journal.
type podLinks struct {
	journal attach.Journal
}

// Links implements netwatcher.Pods.
func (p podLinks) Links() (map[network.Link]bool, error) {
	records, err := p.journal.List()
	if err != nil {
		return nil, err
	}
	links := map[network.Link]bool{}
	for _, rec := range records {
		if rec.State == attach.Released {
			continue
		}
		for i := range rec.Interfaces {
			if id, ok := rec.Interfaces[i].Network.Link(); ok {
				links[id] = true
			}
		}
	}
	return links, nil
}

// reserved are the nodes' own addresses in a network's subnets: no Pod gets one.
func (d *daemon) reserved(ctx context.Context) func(*network.Network) []netip.Addr {
	return func(n *network.Network) []netip.Addr { return objects.Reserved(n, d.nodes.NICs(ctx)) }
}
