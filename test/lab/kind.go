// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
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

// ErrKind says that a node cannot have a kind.
var ErrKind = errors.New("wrong kind of node")

// kindFile is in the node's folder.
const kindFile = "kind"

// findKernel returns the kernel of a kind.
func (c Config) findKernel(kind Kind) (vm.Kernel, error) {
	switch kind {
	case KindUML:
		return uml.FindKernel(c.Bin)
	case KindQEMU:
		return qemu.FindKernel(c.Bin)
	default:
		return nil, fmt.Errorf("%w: must be %s or %s, got %q", ErrKind, KindUML, KindQEMU, kind)
	}
}

// kindOf returns the kind of a node: the one it was made with, else the one that it shall be made
// with.
func (c Config) kindOf(name string) (Kind, error) {
	raw, err := os.ReadFile(filepath.Join(c.nodeDir(name), kindFile))
	switch {
	case err == nil:
		return Kind(strings.TrimSpace(string(raw))), nil
	case !errors.Is(err, os.ErrNotExist):
		return "", fmt.Errorf("read kind of %s: %w", name, err)
	case slices.Contains(c.QEMU, name):
		return KindQEMU, nil
	default:
		return KindUML, nil
	}
}

// storeKind makes the folder of a node of that kind. A node that is there with another kind is an error.
func (c Config) storeKind(name string, kind Kind) error {
	dir := c.nodeDir(name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make folder of %s: %w", name, err)
	}
	file, err := os.OpenFile(filepath.Join(dir, kindFile), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if errors.Is(err, os.ErrExist) {
		if has, err := c.kindOf(name); err != nil || has != kind {
			return errors.Join(err, fmt.Errorf("make %s as %s: %w: it is there as %s, and stays so until lab down", name, kind, ErrKind, has))
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("store kind of %s: %w", name, err)
	}
	_, err = file.WriteString(string(kind) + "\n")
	if err := errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("store kind of %s: %w", name, err)
	}
	return nil
}
