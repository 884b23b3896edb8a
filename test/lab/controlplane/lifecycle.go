// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/patchbay-cni/patchbay/test/lab/process"
)

// StartPart starts a part that does not run and waits until it is ready.
func (c *ControlPlane) StartPart(ctx context.Context, part Part) error {
	if c.Alive(part) {
		return nil
	}
	if err := c.launch(part); err != nil {
		return err
	}
	return c.awaitReady(ctx, part)
}

// StopPart ends a part politely. One that does not run is fine.
func (c *ControlPlane) StopPart(ctx context.Context, part Part) error {
	id, err := c.process(part)
	if err != nil {
		return err
	}
	if err := id.Stop(ctx, grace); err != nil {
		return fmt.Errorf("stop %s: %w", part, err)
	}
	return nil
}

// Restart ends a part politely and starts it again.
func (c *ControlPlane) Restart(ctx context.Context, part Part) error {
	if err := c.StopPart(ctx, part); err != nil {
		return err
	}
	return c.StartPart(ctx, part)
}

// Kill ends the parts as a power cut would. One that does not run is fine.
func (c *ControlPlane) Kill(ctx context.Context, parts ...Part) error {
	var errs []error
	for _, part := range parts {
		id, err := c.process(part)
		if err == nil {
			err = id.Kill(ctx)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("kill %s: %w", part, err))
		}
	}
	return errors.Join(errs...)
}

// Pause freezes a part: when it returns, the part keeps its connections and answers
// nothing.
func (c *ControlPlane) Pause(ctx context.Context, part Part) error {
	id, err := c.process(part)
	if err == nil {
		err = id.Pause(ctx)
	}
	if err != nil {
		return fmt.Errorf("pause %s: %w", part, err)
	}
	return nil
}

// Resume ends a pause.
func (c *ControlPlane) Resume(part Part) error {
	id, err := c.process(part)
	if err == nil {
		err = id.Signal(unix.SIGCONT)
	}
	if err != nil {
		return fmt.Errorf("resume %s: %w", part, err)
	}
	return nil
}

// Alive tells whether the part's process exists.
func (c *ControlPlane) Alive(part Part) bool {
	id, err := c.process(part)
	return err == nil && id.Alive()
}

// Parts lists the parts of this control plane in starting order.
func (c *ControlPlane) Parts() []Part { return c.config.parts() }

// EtcdData returns the folder of etcd's data; while etcd is ended it can be copied.
func (c *ControlPlane) EtcdData() string { return c.config.path(etcdData) }

// Log returns the path of a part's log.
func (c *ControlPlane) Log(part Part) string { return c.config.path(part.logFile()) }

func (c *ControlPlane) launch(part Part) error {
	if !slices.Contains(c.config.parts(), part) {
		return fmt.Errorf("start %s: %w", part, ErrNoPart)
	}
	if part == Etcd {
		if err := c.removeSockets(); err != nil {
			return err
		}
	}
	id, err := process.Start(process.Spec{
		Args:  c.config.command(part),
		Dir:   c.config.Dir,
		Log:   c.Log(part),
		Netns: c.config.Netns,
		Tied:  c.config.Tied,
	})
	if err != nil {
		return fmt.Errorf("start %s: %w", part, err)
	}
	raw, err := json.Marshal(id)
	if err != nil {
		return fmt.Errorf("encode process of %s: %w", part, err)
	}
	return writeFile(c.config.path(part.pidFile()), raw, 0o644)
}

// removeSockets clears away what a killed etcd left: it does not listen on an old socket.
func (c *ControlPlane) removeSockets() error {
	for _, socket := range []string{etcdSocket, peerSocket} {
		if err := os.RemoveAll(c.config.path(socket)); err != nil {
			return fmt.Errorf("remove old socket: %w", err)
		}
	}
	return nil
}

// process returns the part's last process; one that never ran has the zero ID, which
// names no process.
func (c *ControlPlane) process(part Part) (process.ID, error) {
	if !slices.Contains(c.config.parts(), part) {
		return process.ID{}, fmt.Errorf("find %s: %w", part, ErrNoPart)
	}
	raw, err := os.ReadFile(c.config.path(part.pidFile()))
	if errors.Is(err, os.ErrNotExist) {
		return process.ID{}, nil
	}
	if err != nil {
		return process.ID{}, fmt.Errorf("find %s: %w", part, err)
	}
	var id process.ID
	if err := json.Unmarshal(raw, &id); err != nil {
		return process.ID{}, fmt.Errorf("find %s: %w", part, err)
	}
	return id, nil
}
