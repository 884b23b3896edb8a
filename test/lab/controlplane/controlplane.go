// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"
)

// grace is how long a part may take to end politely. The API server would wait for
// its watchers for a minute.
const grace = 3 * time.Second

// Errors of this package.
var (
	// ErrNone says that there is no control plane in the folder.
	ErrNone = errors.New("no control plane here")
	// ErrExists says that the folder holds a control plane already.
	ErrExists = errors.New("a control plane is here already")
	// ErrDied says that a part ended while its readiness was awaited.
	ErrDied = errors.New("process died")
	// ErrNoPart says that this control plane has no such part.
	ErrNoPart = errors.New("not a part of this control plane")
)

// ControlPlane is a control plane in a folder, started here or by an earlier command.
type ControlPlane struct {
	config Config
	ca     *authority
	admin  pair
}

// Start makes a control plane and returns when it is ready for work: the API server
// serves, and the controller manager, if there is one, has made the default service
// account. When that fails nothing is left running.
func Start(ctx context.Context, config Config) (*ControlPlane, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(config.path(configFile)); err == nil {
		return nil, fmt.Errorf("start in %s: %w", config.Dir, ErrExists)
	}
	if err := os.MkdirAll(config.path(etcdData), 0o700); err != nil {
		return nil, fmt.Errorf("make folder: %w", err)
	}
	if err := config.writeCredentials(); err != nil {
		return nil, err
	}
	if err := config.save(); err != nil {
		return nil, err
	}
	c, err := Open(config.Dir)
	if err != nil {
		return nil, err
	}
	if err := c.startAll(ctx); err != nil {
		return nil, errors.Join(err, c.Kill(context.WithoutCancel(ctx), config.parts()...))
	}
	return c, nil
}

// Open returns the control plane in the folder, whether its parts run or not. The
// error is ErrNone when there is none.
func Open(dir string) (*ControlPlane, error) {
	config, err := load(dir)
	if err != nil {
		return nil, err
	}
	ca, err := loadAuthority(config.path(caName))
	if err != nil {
		return nil, err
	}
	admin, err := ca.client("admin", mastersGroup)
	if err != nil {
		return nil, err
	}
	return &ControlPlane{config: config, ca: ca, admin: admin}, nil
}

func (c *ControlPlane) startAll(ctx context.Context) error {
	for _, part := range c.config.parts() {
		if err := c.launch(part); err != nil {
			return err
		}
		// The API server takes a second to notice an etcd that came after it. The
		// controller manager ends by itself when the API server does not let it in ten
		// seconds after its own start, which a busy machine is not ready for.
		if part == Etcd || part == APIServer {
			if err := c.awaitReady(ctx, part); err != nil {
				return err
			}
		}
	}
	for _, part := range c.config.parts() {
		if err := c.awaitReady(ctx, part); err != nil {
			return err
		}
	}
	return nil
}

// Destroy ends all parts at once and removes the folder with all data.
func (c *ControlPlane) Destroy(ctx context.Context) error {
	if err := c.Kill(ctx, c.config.parts()...); err != nil {
		return err
	}
	if err := os.RemoveAll(c.config.Dir); err != nil {
		return fmt.Errorf("remove folder: %w", err)
	}
	return nil
}

// Stop ends all parts politely, etcd last. StartPart brings each back.
func (c *ControlPlane) Stop(ctx context.Context) error {
	parts := slices.Clone(c.config.parts())
	slices.Reverse(parts)
	var errs []error
	for _, part := range parts {
		errs = append(errs, c.StopPart(ctx, part))
	}
	return errors.Join(errs...)
}
