// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/client-go/kubernetes"

	"github.com/patchbay-cni/patchbay/test/lab/fabric"
	"github.com/patchbay-cni/patchbay/test/lab/node"
)

// Health is one part of the lab and how it is.
type Health struct {
	// Part is a program of the control plane or a node.
	Part string
	// State is a few words; Detail says more about what is not well.
	State, Detail string
	// Good is false for what is not as Up leaves it.
	Good bool
}

// Status looks at every part of the lab.
func (l *Lab) Status(ctx context.Context) ([]Health, error) {
	plane, err := l.plane()
	if err != nil {
		return nil, err
	}
	var all []Health
	for _, part := range plane.Parts() {
		h := Health{Part: string(part), State: "running", Good: true}
		if !plane.Alive(part) {
			h = Health{Part: string(part), State: "down", Detail: "lab restart " + string(part)}
		}
		all = append(all, h)
	}
	client, err := l.client()
	if err != nil {
		return nil, err
	}
	nodes, err := l.Nodes()
	if err != nil {
		return nil, err
	}
	for _, name := range nodes {
		all = append(all, l.nodeHealth(ctx, client, name))
	}
	return all, nil
}

func (l *Lab) nodeHealth(ctx context.Context, client kubernetes.Interface, name string) Health {
	h := Health{Part: name}
	c, err := l.known(name)
	if err != nil {
		h.State, h.Detail = "broken", err.Error()
		return h
	}
	if !node.On(c.Dir) {
		h.State, h.Detail = "off", "lab node start "+name
		return h
	}
	if cut, err := c.Fabric.IsCut(c.Port); err != nil {
		h.State, h.Detail = "broken", err.Error()
		return h
	} else if cut {
		h.State, h.Detail = "cut off", "lab node heal "+name
		return h
	}
	if err := l.ready(ctx, client, name); err != nil {
		h.State, h.Detail = "not ready", err.Error()
		return h
	}
	var addresses []string
	for _, card := range []fabric.Card{c.Port.Management(), c.Port.Trunk(), c.Port.Second()} {
		addresses = append(addresses, fmt.Sprintf("%s on %s", card.Prefix.Addr(), card.Name))
	}
	return Health{Part: name, State: "ready", Detail: strings.Join(addresses, ", "), Good: true}
}
