// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"

	"github.com/patchbay-cni/patchbay/netwatcher"
)

// Apply takes one step of netwatcher's. It holds the link's lock, so that no
// slave is made on a link that goes.
func (k *Kernel) Apply(_ context.Context, c netwatcher.Change) error {
	unlock := k.parents.lock(c.Link.Name)
	defer unlock()
	switch c.Op {
	case netwatcher.Raise:
		return k.raise(c.Link.Device)
	case netwatcher.Delete:
		return k.deleteOurs(c.Link.Name, c.HalfMade)
	case netwatcher.Create:
		return k.createHostLink(&c.Link)
	case netwatcher.Update:
		return k.updateHostLink(&c.Link)
	case netwatcher.Untag:
		return k.dropTags(&c.Link)
	case netwatcher.Trunk:
		return k.passTags(&c.Link)
	case netwatcher.Peer, netwatcher.Forget:
		link, err := k.findOurs(c.Link.Name)
		if err != nil {
			return err
		}
		if c.Op == netwatcher.Forget {
			return k.host.forget(link.Attrs().Index, c.Drop)
		}
		return k.host.setPeers(link.Attrs().Index, c.Add, c.Drop)
	}
	return fmt.Errorf("%w: step %q", ErrInvalid, c.Op)
}

// findOurs looks a link up and checks its mark.
func (k *Kernel) findOurs(name string) (netlink.Link, error) {
	link, err := k.host.linkByName(name)
	if err != nil {
		return nil, err
	}
	if !ours(link.Attrs()) {
		return nil, fmt.Errorf("%s has no mark of ours: %w", name, ErrNameTaken)
	}
	return link, nil
}

func (k *Kernel) raise(name string) error {
	link, err := k.host.linkByName(name)
	if err != nil {
		return err
	}
	if err := k.host.setLink(link.Attrs().Index, true); err != nil {
		return fmt.Errorf("set up: %w", err)
	}
	return nil
}

// deleteOurs removes a link; with onlyHalf only one that was not finished meanwhile.
func (k *Kernel) deleteOurs(name string, onlyHalf bool) error {
	link, err := k.findOurs(name)
	if errors.Is(err, errNoLink) {
		return nil
	}
	if err != nil || onlyHalf && !halfMade(link.Attrs()) {
		return err
	}
	return k.host.deleteLink(link.Attrs().Index)
}
