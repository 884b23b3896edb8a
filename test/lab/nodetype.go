// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/patchbay-cni/patchbay/test/lab/qemu"
	"github.com/patchbay-cni/patchbay/test/lab/uml"
	"github.com/patchbay-cni/patchbay/test/lab/vm"
)

// NodeType is what a node keeps for as long as the lab exists. The zero values of its fields are the
// defaults.
type NodeType struct {
	Kind    Kind    `json:"kind"`
	Runtime Runtime `json:"runtime"`
}

// Kind is what a node's kernel runs in.
type Kind string

// Kinds of nodes.
const (
	// KindUML is a node of User-Mode Linux, the default.
	KindUML Kind = "uml"
	// KindQEMU is a node whose cards ens4 and ens5 are physical functions of SR-IOV.
	KindQEMU Kind = "qemu"
)

// kindLabel is a label of each Node object, with its kind.
const kindLabel = "patchbay.local/kind"

// Runtime is the container runtime of a node.
type Runtime string

// Container runtimes of nodes.
const (
	// RuntimeContainerd is the containerd that the machine's package has, the default.
	RuntimeContainerd Runtime = "containerd"
	// RuntimeContainerd2 is containerd 2, which `make containerd-2` builds.
	RuntimeContainerd2 Runtime = "containerd-2"
)

// Errors about the type of a node: it is unknown, or the node was made with another one.
var (
	ErrKind    = errors.New("wrong kind of node")
	ErrRuntime = errors.New("wrong container runtime of node")
)

// findKernel returns the kernel of a kind, below bin, the folder of built programs.
func (k Kind) findKernel(bin string) (vm.Kernel, error) {
	switch k {
	case KindUML:
		return uml.FindKernel(bin)
	case KindQEMU:
		return qemu.FindKernel(bin)
	default:
		return nil, fmt.Errorf("%w: must be %s or %s, got %q", ErrKind, KindUML, KindQEMU, k)
	}
}

// findContainerd2 returns the folder with the programs of containerd 2, below bin, the folder of built
// programs, or "" for the machine's containerd.
func (r Runtime) findContainerd2(bin string) (string, error) {
	switch r {
	case RuntimeContainerd:
		return "", nil
	case RuntimeContainerd2:
		dir := filepath.Join(bin, string(r))
		if _, err := os.Stat(filepath.Join(dir, "containerd")); err != nil {
			return "", fmt.Errorf("find containerd 2 (make containerd-2): %w", err)
		}
		return dir, nil
	default:
		return "", fmt.Errorf("%w: must be %s or %s, got %q", ErrRuntime, RuntimeContainerd, RuntimeContainerd2, r)
	}
}

func (n NodeType) withDefaults() NodeType {
	if n.Kind == "" {
		n.Kind = KindUML
	}
	if n.Runtime == "" {
		n.Runtime = RuntimeContainerd
	}
	return n
}

// check checks that nodes of the type can boot, with the programs below bin.
func (n NodeType) check(bin string) error {
	if _, err := n.Kind.findKernel(bin); err != nil {
		return err
	}
	_, err := n.Runtime.findContainerd2(bin)
	return err
}

// typeFile is in the node's folder.
const typeFile = "node.json"

// readType returns the type of the node in a folder. The error is os.ErrNotExist for a node that was
// not made yet.
func readType(dir string) (NodeType, error) {
	var n NodeType
	raw, err := os.ReadFile(filepath.Join(dir, typeFile))
	if err != nil {
		return n, fmt.Errorf("read type of node: %w", err)
	}
	if err := json.Unmarshal(raw, &n); err != nil {
		return n, fmt.Errorf("decode type of node: %w", err)
	}
	return n, nil
}

// storeType makes the folder of a node of that type. A node that is there with another type is an error.
func storeType(dir string, want NodeType) error {
	name := filepath.Base(dir)
	has, err := readType(dir)
	switch {
	case errors.Is(err, os.ErrNotExist):
	case err != nil:
		return err
	case has.Kind != want.Kind:
		return fmt.Errorf("make %s as %s: %w: it is there as %s, and stays so until lab down", name, want.Kind, ErrKind, has.Kind)
	case has.Runtime != want.Runtime:
		return fmt.Errorf("make %s with %s: %w: it is there with %s, and stays so until lab down", name, want.Runtime, ErrRuntime, has.Runtime)
	default:
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make folder of %s: %w", name, err)
	}
	raw, err := json.Marshal(want)
	if err != nil {
		return fmt.Errorf("encode type of %s: %w", name, err)
	}
	return os.WriteFile(filepath.Join(dir, typeFile), raw, 0o644)
}
