// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/patchbay-cni/patchbay/test/lab/controlplane"
	"github.com/patchbay-cni/patchbay/test/lab/fabric"
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
	// QEMU are the names of nodes that are of KindQEMU when they are made.
	QEMU []string `json:"qemu,omitempty"`
	// Runtime is the container runtime of all nodes. If it is empty, nodes that are there keep
	// theirs, and others are made with RuntimeContainerd.
	Runtime Runtime `json:"runtime,omitempty"`
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

// validName keep a namespace's name, folders and socket paths short.
var validName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,22}[a-z0-9])?$`)

func (c Config) withDefaults() (Config, error) {
	if c.Name == "" {
		c.Name = DefaultName
	}
	if !validName.MatchString(c.Name) {
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

// named fills in and checks the name only: what is enough to find a lab.
func (c Config) named() (Config, error) {
	if c.Name == "" {
		c.Name = DefaultName
	}
	if !validName.MatchString(c.Name) {
		return c, fmt.Errorf("check lab's name %q: want up to 24 lower-case letters, digits and hyphens", c.Name)
	}
	return c, nil
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

// ErrMachine says that a lab cannot run on this machine as it is.
var ErrMachine = errors.New("this machine cannot run a lab")

// requiredPrograms are what the lab and its nodes execute; scripts/install-packages brings them.
func requiredPrograms() []string {
	return []string{
		"containerd", "ctr", "runc", "etcd", "mkfs.ext4", "ip", "nft", "nsenter", "sysctl", "modprobe",
		"/usr/lib/cni/bridge", "/usr/lib/cni/host-local", "/usr/bin/busybox",
	}
}

// checkMachine says at once what would fail minutes later, in a place hard to find.
func (c Config) checkMachine() error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("%w: not run by root, whom a network namespace needs", ErrMachine)
	}
	for _, name := range requiredPrograms() {
		if _, err := exec.LookPath(name); err != nil {
			return fmt.Errorf("%w (make packages): %w", ErrMachine, err)
		}
	}
	return c.checkMemory("/dev/shm")
}

// checkMemory looks at the file system that guests of User-Mode Linux take their memory from. When it is
// full they die of SIGBUS.
func (c Config) checkMemory(dir string) error {
	nodes, err := c.wantedNodes()
	if err != nil {
		return err
	}
	if nodes, err = c.ofKind(KindUML, nodes); err != nil {
		return err
	}
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return fmt.Errorf("look at %s: %w", dir, err)
	}
	const mebi = 1 << 20
	size, need := int64(s.Blocks)*s.Bsize/mebi, int64(len(nodes))*int64(c.Memory)
	if size < need {
		return fmt.Errorf("%w: %s has %d MiB, %d nodes of %d MiB need %d", ErrMachine, dir, size, len(nodes), c.Memory, need)
	}
	return nil
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

// lock makes the lab's folder and keeps other commands from changing the lab. What it
// returns unlocks; the kernel does, too, when the process dies.
func (c Config) lock() (unlock func(), err error) {
	for {
		if err := os.MkdirAll(c.dir(), 0o755); err != nil {
			return nil, fmt.Errorf("make lab's folder: %w", err)
		}
		f, err := os.Open(c.dir())
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("lock lab: %w", err)
		}
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
			return nil, errors.Join(fmt.Errorf("lock lab: %w", err), f.Close())
		}
		// Another command's down may have removed the folder that is locked now.
		mine, err1 := f.Stat()
		current, err2 := os.Stat(c.dir())
		if err1 == nil && err2 == nil && os.SameFile(mine, current) {
			return func() { _ = f.Close() }, nil
		}
		_ = f.Close()
	}
}

func (c Config) dir() string { return filepath.Join(runDir, c.Name) }

func (c Config) disks() string { return filepath.Join(diskDir, c.Name) }

func (c Config) path(name string) string { return filepath.Join(c.dir(), name) }

func (c Config) fabric() fabric.Fabric { return fabric.Fabric{Netns: "pb-" + c.Name} }

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

func (c Config) nodes() ([]string, error) {
	entries, err := os.ReadDir(c.path(nodesDir))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	var ports []fabric.Port
	for _, e := range entries {
		if p, err := port(e.Name()); err == nil {
			ports = append(ports, p)
		}
	}
	slices.Sort(ports)
	var all []string
	for _, p := range ports {
		all = append(all, nodeName(p))
	}
	return all, nil
}

func (c Config) nodeDir(name string) string { return filepath.Join(c.path(nodesDir), name) }

// typeOf returns the type of a node: the one it was made with, else the default.
func (c Config) typeOf(name string) (NodeType, error) {
	has, err := readType(c.nodeDir(name))
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	return has.withDefaults(), err
}

// wantedType is typeOf with the kind and runtime of the configuration.
func (c Config) wantedType(name string) (NodeType, error) {
	want, err := c.typeOf(name)
	if slices.Contains(c.QEMU, name) {
		want.Kind = KindQEMU
	}
	if c.Runtime != "" {
		want.Runtime = c.Runtime
	}
	return want, err
}

// wantedNodes are the names of all nodes that there are when the lab is up: those that are there, those
// of QEMU, and as many more as it takes.
func (c Config) wantedNodes() ([]string, error) {
	nodes, err := c.nodes()
	if err != nil {
		return nil, err
	}
	for _, name := range c.QEMU {
		if _, err := port(name); err != nil {
			return nil, err
		}
		if !slices.Contains(nodes, name) {
			nodes = append(nodes, name)
		}
	}
	return addFreeNames(nodes, c.Nodes), nil
}

// ofKind lists those of the nodes that are of the kind.
func (c Config) ofKind(kind Kind, nodes []string) ([]string, error) {
	var found []string
	for _, name := range nodes {
		has, err := c.wantedType(name)
		if err != nil {
			return nil, err
		}
		if has.Kind == kind {
			found = append(found, name)
		}
	}
	return found, nil
}

// builtImages are those of the product that nodes import, from `make images`: without those of placement,
// since no lab runs a hub or its agent.
func (c Config) builtImages() ([]string, error) {
	built, err := filepath.Glob(filepath.Join(c.Bin, "images", "*.tar"))
	if err != nil {
		return nil, fmt.Errorf("list images: %w", err)
	}
	return slices.DeleteFunc(built, func(file string) bool {
		return slices.Contains([]string{"patchbay-hub.tar", "patchbay-agent.tar"}, filepath.Base(file))
	}), nil
}
