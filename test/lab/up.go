// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sync/errgroup"

	"github.com/patchbay-cni/patchbay/test/lab/controlplane"
	"github.com/patchbay-cni/patchbay/test/lab/fabric"
	"github.com/patchbay-cni/patchbay/test/lab/image"
	"github.com/patchbay-cni/patchbay/test/lab/uml"
)

// Up makes the lab or completes the one that is there: what runs goes on running,
// what is missing is started. It returns when all nodes are ready. After an error the
// lab is left for a look at its logs.
func Up(ctx context.Context, config Config) (*Lab, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := config.checkMachine(); err != nil {
		return nil, fmt.Errorf("start lab %s: %w", config.Name, err)
	}
	unlock, err := config.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()
	l := &Lab{config: config, log: newProgress(config.Progress)}
	if l.usable() {
		l.config.Owner = ownerOf(config.path(stateFile), config.Owner)
	} else if err := config.wipe(ctx); err != nil {
		return nil, fmt.Errorf("clear what is left of lab %s: %w", config.Name, err)
	}
	if err := l.config.save(); err != nil {
		return nil, err
	}
	if err := l.up(ctx); err != nil {
		return nil, fmt.Errorf("start lab %s: %w", config.Name, err)
	}
	return l, nil
}

// usable tells whether a lab that is there can be completed. Without its own state or
// its control plane's nothing is known of it: nodes would wait for an API server whose
// certificates nobody has, and their disks would be those of another cluster.
func (l *Lab) usable() bool {
	_, err := os.Stat(l.config.path(stateFile))
	if err != nil {
		return false
	}
	_, err = l.plane()
	return err == nil
}

func (l *Lab) up(ctx context.Context) error {
	kernel, err := uml.FindKernel(l.config.Bin)
	if err != nil {
		return err
	}
	l.log.printf("lab %s: nodes boot %s", l.config.Name, kernel.Describe())
	for _, step := range []struct {
		what string
		do   func(context.Context) error
	}{
		{"make network " + l.Netns(), func(context.Context) error { return l.config.fabric().Create() }},
		{"start control plane", l.startPlane},
		{"make images", func(context.Context) error { return l.writeImages() }},
		{"boot nodes", l.startNodes},
		{"wait for nodes", l.awaitNodes},
	} {
		if err := l.log.step(step.what, func() error { return step.do(ctx) }); err != nil {
			return err
		}
	}
	if l.config.Install {
		return l.log.step("install Patchbay", func() error { return l.Install(ctx) })
	}
	return nil
}

// startPlane starts the control plane, or the parts of it that are missing.
func (l *Lab) startPlane(ctx context.Context) error {
	plane, err := l.plane()
	if errors.Is(err, controlplane.ErrNone) {
		_, err := controlplane.Start(ctx, l.config.plane())
		return err
	}
	if err != nil {
		return err
	}
	for _, part := range plane.Parts() {
		if err := plane.StartPart(ctx, part); err != nil {
			return err
		}
	}
	return nil
}

func (c Config) plane() controlplane.Config {
	return controlplane.Config{
		Dir:               c.path(planeDir),
		Bin:               filepath.Join(c.Bin, "kubernetes"),
		Netns:             c.fabric().Netns,
		Address:           fabric.Gateway(),
		Port:              fabric.APIPort,
		ControllerManager: true,
		Scheduler:         true,
	}
}

func (l *Lab) plane() (*controlplane.ControlPlane, error) {
	return controlplane.Open(l.config.path(planeDir))
}

func (l *Lab) writeImages() error {
	file := l.config.path(baseFile)
	if _, err := os.Stat(file); err == nil {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return fmt.Errorf("make image folder: %w", err)
	}
	return image.Write(file)
}

// startNodes boots all nodes that are off, those that were added later too.
func (l *Lab) startNodes(ctx context.Context) error {
	nodes, err := l.Nodes()
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, name := range enough(nodes, l.config.Nodes) {
		group.Go(func() error { return l.startNode(ctx, name) })
	}
	return group.Wait()
}
