// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"

	"github.com/patchbay-cni/patchbay/test/lab/process"
)

// DefaultName is the lab of `make demo`.
const DefaultName = "demo"

// Config describes a lab. Its zero value is a lab of two nodes without Patchbay.
type Config struct {
	// Name has 1 to 24 lower-case letters, digits and hyphens; DefaultName by default.
	Name string `json:"name"`
	// Nodes is the number of nodes that there are at least; 2 by default.
	Nodes int `json:"nodes"`
	// Memory of each node in MiB; 1536 by default. A node takes it as it needs it.
	Memory int `json:"memory"`
	// Install applies deployments/ and waits until Patchbay runs on all nodes.
	Install bool `json:"install"`
	// Bin is the folder of the built programs: lab itself, kubernetes/ and images/.
	// By default the one that this program is in, or bin/ of the module around the
	// working folder.
	Bin string `json:"bin"`
	// Owner is the test that the lab is for; a lab outlives any other command.
	Owner process.ID `json:"owner"`
	// Progress gets a line at the begin and the end of each step.
	Progress io.Writer `json:"-"`
}

const (
	defaultNodes  = 2
	defaultMemory = 1536
	program       = "lab"
)

// names keep a namespace's name, folders and socket paths short.
var names = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,22}[a-z0-9])?$`)

func (c Config) withDefaults() (Config, error) {
	if c.Name == "" {
		c.Name = DefaultName
	}
	if !names.MatchString(c.Name) {
		return c, fmt.Errorf("check lab's name %q: want up to 24 lower-case letters, digits and hyphens", c.Name)
	}
	if c.Nodes == 0 {
		c.Nodes = defaultNodes
	}
	if c.Memory == 0 {
		c.Memory = defaultMemory
	}
	if c.Progress == nil {
		c.Progress = io.Discard
	}
	if c.Bin == "" {
		bin, err := findBin()
		if err != nil {
			return c, err
		}
		c.Bin = bin
	}
	return c, c.checkBin()
}

func (c Config) checkBin() error {
	for _, name := range []string{program, "kubernetes/kubelet", "kubernetes/kubectl"} {
		if _, err := os.Stat(filepath.Join(c.Bin, name)); err != nil {
			return fmt.Errorf("find built programs (make build kubernetes images): %w", err)
		}
	}
	return nil
}

// findBin looks beside this program, then upwards for a module.
func findBin() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find own program: %w", err)
	}
	if filepath.Base(self) == program {
		return filepath.Dir(self), nil
	}
	here, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find working folder: %w", err)
	}
	for dir := here; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return filepath.Join(dir, "bin"), nil
		}
	}
	return "", fmt.Errorf("find built programs: no module around %s", here)
}

// source returns a path in the module whose bin/ the programs are in.
func (c Config) source(path ...string) string {
	return filepath.Join(append([]string{c.Bin, ".."}, path...)...)
}
