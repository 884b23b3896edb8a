// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/patchbay-cni/patchbay/test/lab/node"
)

// AddNode makes one more node, by its name, and waits until it is ready.
func (l *Lab) AddNode(ctx context.Context, name string) error {
	_, err := l.known(name)
	if err == nil {
		err = os.ErrExist
	}
	if !errors.Is(err, ErrNoNode) {
		return fmt.Errorf("add %s: %w", name, err)
	}
	return l.StartNode(ctx, name)
}

// StartNode switches a node on that is new or off, and waits until it is ready.
func (l *Lab) StartNode(ctx context.Context, name string) error {
	unlock, err := l.config.lock()
	if err != nil {
		return err
	}
	defer unlock()
	if err := l.log.step("boot "+name, func() error { return l.startNode(ctx, name) }); err != nil {
		return err
	}
	return l.log.step("wait for "+name, func() error { return l.awaitNode(ctx, name) })
}

// KillNode cuts a node's power. Its disk stays.
func (l *Lab) KillNode(ctx context.Context, name string) error {
	c, err := l.known(name)
	if err != nil {
		return err
	}
	return node.Kill(ctx, c.Dir)
}

// CutNode takes all network cables out of a node; Exec still works.
func (l *Lab) CutNode(name string) error {
	c, err := l.known(name)
	if err != nil {
		return err
	}
	return c.Fabric.Cut(c.Port)
}

// HealNode puts the cables back.
func (l *Lab) HealNode(name string) error {
	c, err := l.known(name)
	if err != nil {
		return err
	}
	return c.Fabric.Heal(c.Port)
}
