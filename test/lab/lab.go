// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/patchbay-cni/patchbay/test/lab/fabric"
)

// Where labs keep their files. What is in runDir is small.
const (
	runDir  = "/run/patchbay-lab"
	diskDir = "/var/tmp/patchbay-lab"
)

// Names in a lab's folder.
const (
	stateFile = "lab.json"
	planeDir  = "controlplane"
	nodesDir  = "nodes"
	baseFile  = "images/base.tar"
)

// ErrNone says that there is no lab of that name.
var ErrNone = errors.New("no such lab")

// Lab is a lab that is up, or was before something broke.
type Lab struct {
	config Config
	log    *progress
}

// Open returns the lab of that name. The error is ErrNone when there is none.
func Open(name string) (*Lab, error) {
	config, err := Config{Name: name, Bin: "/"}.named()
	if err != nil {
		return nil, err
	}
	raw, err := os.ReadFile(config.path(stateFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("open lab %s (lab up makes it): %w", config.Name, ErrNone)
	}
	if err != nil {
		return nil, fmt.Errorf("open lab: %w", err)
	}
	if err := json.Unmarshal(raw, &config); err != nil {
		return nil, fmt.Errorf("decode %s: %w", config.path(stateFile), err)
	}
	if config, err = config.withDefaults(); err != nil {
		return nil, err
	}
	return &Lab{config: config, log: newProgress(config.Progress)}, nil
}

// named fills in and checks the name only: what is enough to find a lab.
func (c Config) named() (Config, error) {
	if c.Name == "" {
		c.Name = DefaultName
	}
	if !names.MatchString(c.Name) {
		return c, fmt.Errorf("check lab's name %q: want up to 24 lower-case letters, digits and hyphens", c.Name)
	}
	return c, nil
}

func (c Config) save() error {
	raw, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return fmt.Errorf("encode lab: %w", err)
	}
	next := c.path(stateFile) + ".new"
	if err := os.WriteFile(next, raw, 0o644); err != nil {
		return fmt.Errorf("save lab: %w", err)
	}
	return os.Rename(next, c.path(stateFile))
}

func (c Config) dir() string { return filepath.Join(runDir, c.Name) }

func (c Config) disks() string { return filepath.Join(diskDir, c.Name) }

func (c Config) path(name string) string { return filepath.Join(c.dir(), name) }

func (c Config) fabric() fabric.Fabric { return fabric.Fabric{Netns: "pb-" + c.Name} }

// Name is the lab's name.
func (l *Lab) Name() string { return l.config.Name }

// Netns is the name of the lab's network namespace.
func (l *Lab) Netns() string { return l.config.fabric().Netns }
