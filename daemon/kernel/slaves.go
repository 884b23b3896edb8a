// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"fmt"

	"github.com/vishvananda/netlink"
)

// Slaves returns the names of the host's links that another link is on: in the
// host's namespace, or in one that a runtime has mounted for a sandbox. There a link
// says the index of its parent and that it is elsewhere, not where: one more than
// there are may be named, none is missed. Ports of a bridge are in use, too.
func (k *Kernel) Slaves(ctx context.Context) (map[string]bool, error) {
	return k.slaves(ctx, namespaceFolders())
}

func (k *Kernel) slaves(ctx context.Context, folders []string) (map[string]bool, error) {
	used, names := map[string]bool{}, map[int]string{}
	var here, elsewhere []int
	err := eachLink(k.host, func(l netlink.Link) {
		a := l.Attrs()
		names[a.Index] = a.Name
		if a.MasterIndex != 0 {
			here = append(here, a.Index)
		}
		if a.NetNsID < 0 && l.Type() != "veth" {
			here = append(here, a.ParentIndex)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("what is on links of the host: %w", err)
	}
	seen := map[identity]bool{}
	for _, folder := range folders {
		err := below(ctx, folder, seen, func(c *conn) error {
			return eachLink(c, func(l netlink.Link) {
				if l.Attrs().NetNsID >= 0 && l.Type() != "veth" {
					elsewhere = append(elsewhere, l.Attrs().ParentIndex)
				}
			})
		})
		if err != nil {
			return nil, fmt.Errorf("links in %w", err)
		}
	}
	for _, index := range append(here, elsewhere...) {
		if name := names[index]; name != "" {
			used[name] = true
		}
	}
	return used, nil
}

// eachLink visits the links of the namespace that the socket is of.
func eachLink(c *conn, visit func(netlink.Link)) error {
	msgs, err := c.listLinks()
	if err != nil {
		return err
	}
	for _, m := range msgs {
		link, err := netlink.LinkDeserialize(nil, m)
		if err != nil {
			return fmt.Errorf("read a link: %w", err)
		}
		visit(link)
	}
	return nil
}
