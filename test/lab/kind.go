// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/patchbay-cni/patchbay/test/lab/qemu"
	"github.com/patchbay-cni/patchbay/test/lab/uml"
	"github.com/patchbay-cni/patchbay/test/lab/vm"
)

// Kind is what a node's kernel runs in. A node keeps its kind for as long as the lab exists.
type Kind string

// Kinds of nodes.
const (
	// KindUML is a node of User-Mode Linux, the default.
	KindUML Kind = "uml"
	// KindQEMU is a node whose cards ens4 and ens5 are physical functions of SR-IOV.
	KindQEMU Kind = "qemu"
)

// ErrKind means that a kind is unknown, or that the node was made with another one.
var ErrKind = errors.New("wrong kind of node")

// kindFile is in the node's folder.
const kindFile = "kind"

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

// readKind returns the kind of the node in a folder. The error is os.ErrNotExist for a node that was
// not made yet.
func readKind(dir string) (Kind, error) {
	raw, err := os.ReadFile(filepath.Join(dir, kindFile))
	if err != nil {
		return "", fmt.Errorf("read kind of node: %w", err)
	}
	return Kind(strings.TrimSpace(string(raw))), nil
}

// storeKind makes the folder of a node of that kind. A node that is there with another kind is an error.
func storeKind(dir string, kind Kind) error {
	name := filepath.Base(dir)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make folder of %s: %w", name, err)
	}
	has, err := readKind(dir)
	if errors.Is(err, os.ErrNotExist) {
		return os.WriteFile(filepath.Join(dir, kindFile), []byte(string(kind)+"\n"), 0o644)
	}
	if err == nil && has != kind {
		err = fmt.Errorf("make %s as %s: %w: it is there as %s, and stays so until lab down", name, kind, ErrKind, has)
	}
	return err
}
