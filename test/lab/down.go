// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/patchbay-cni/patchbay/test/lab/controlplane"
	"github.com/patchbay-cni/patchbay/test/lab/netns"
	"github.com/patchbay-cni/patchbay/test/lab/uml"
)

// Down ends the lab of that name and removes all that belongs to it, whatever state
// it is in. No lab is fine.
func Down(ctx context.Context, name string) error {
	config, err := Config{Name: name}.named()
	if err != nil {
		return err
	}
	unlock, err := config.lock()
	if err != nil {
		return err
	}
	defer unlock()
	if err := config.down(ctx); err != nil {
		return fmt.Errorf("end lab %s: %w", config.Name, err)
	}
	return nil
}

// down goes on after an error, so that as much as possible is removed.
func (c Config) down(ctx context.Context) error {
	errs := []error{c.wipe(ctx), os.RemoveAll(c.dir())}
	_ = os.Remove(diskDir) // the last lab removes the folders of all
	_ = os.Remove(runDir)
	return errors.Join(errs...)
}

// wipe removes everything but the lab's folder itself.
func (c Config) wipe(ctx context.Context) error {
	errs := []error{c.killNodes(ctx), c.killPlane(ctx)}
	// What is in the namespace belongs to the lab, even if no file says so any more.
	errs = append(errs,
		netns.Empty(ctx, c.fabric().Netns),
		c.fabric().Delete(),
		os.RemoveAll(c.disks()),
		os.RemoveAll(c.path(nodesDir)),
		os.RemoveAll(c.path(planeDir)),
	)
	return errors.Join(errs...)
}

func (c Config) killNodes(ctx context.Context) error {
	nodes, err := c.nodes()
	errs := []error{err}
	for _, name := range nodes {
		errs = append(errs, uml.Kill(ctx, c.nodeDir(name)))
	}
	return errors.Join(errs...)
}

func (c Config) killPlane(ctx context.Context) error {
	plane, err := controlplane.Open(c.path(planeDir))
	if err != nil {
		// None, or one that broke while it was made: emptying the namespace is enough.
		return nil //nolint:nilerr // see above
	}
	return plane.Kill(ctx, plane.Parts()...)
}
