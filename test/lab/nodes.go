// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/patchbay-cni/patchbay/test/lab/fabric"
	"github.com/patchbay-cni/patchbay/test/lab/node"
	"github.com/patchbay-cni/patchbay/test/lab/uml"
)

const nodePrefix = "node-"

// ErrNoNode says that the lab has no node of that name.
var ErrNoNode = errors.New("no such node")

func nodeName(p fabric.Port) string { return nodePrefix + strconv.Itoa(int(p)) }

// port is the inverse of nodeName.
func port(name string) (fabric.Port, error) {
	n, err := strconv.Atoi(strings.TrimPrefix(name, nodePrefix))
	if err != nil || n < 1 || n > fabric.MaxIndex || nodeName(fabric.Port(n)) != name {
		return 0, fmt.Errorf("check node's name %q: want node-1 to node-%d", name, fabric.MaxIndex)
	}
	return fabric.Port(n), nil
}

// Nodes lists the names of all nodes, also of those that are off, in order.
func (l *Lab) Nodes() ([]string, error) { return l.config.nodes() }

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

// address is what is needed to reach a node, cut its cables or its power.
func (l *Lab) address(name string) (node.Config, error) {
	p, err := port(name)
	if err != nil {
		return node.Config{}, err
	}
	return node.Config{Name: name, Port: p, Fabric: l.config.fabric(), Dir: l.config.nodeDir(name)}, nil
}

// known is address for a node that exists.
func (l *Lab) known(name string) (node.Config, error) {
	c, err := l.address(name)
	if err != nil {
		return c, err
	}
	if _, err := os.Stat(c.Dir); err != nil {
		return c, fmt.Errorf("find %s: %w", name, ErrNoNode)
	}
	return c, nil
}

// nodeConfig is all that is needed to boot a node.
func (l *Lab) nodeConfig(name string) (node.Config, error) {
	c, err := l.address(name)
	if err != nil {
		return c, err
	}
	plane, err := l.plane()
	if err != nil {
		return c, err
	}
	if c.Kubeconfig, err = plane.NodeKubeconfig(name); err != nil {
		return c, err
	}
	if c.ClientCA, err = os.ReadFile(filepath.Join(l.config.path(planeDir), "ca.crt")); err != nil {
		return c, fmt.Errorf("read authority: %w", err)
	}
	if c.Images, err = l.images(); err != nil {
		return c, err
	}
	if c.Kernel, err = uml.FindKernel(l.config.Bin); err != nil {
		return c, err
	}
	c.Disk = filepath.Join(l.config.disks(), name+".ext4")
	c.Memory = l.config.Memory
	c.Init = filepath.Join(l.config.Bin, program)
	c.Bin = filepath.Join(l.config.Bin, "kubernetes")
	c.Logf = l.log.printf
	return c, nil
}

// images are the archives that each node imports when it boots.
func (l *Lab) images() ([]string, error) {
	built, err := l.config.builtImages()
	return append([]string{l.config.path(baseFile)}, built...), err
}

// hubImage is larger than all others together, and no lab runs a hub: to import it was
// most of a node's first boot.
const hubImage = "patchbay-hub.tar"

// builtImages are those of the product, from `make images`, without the hub's.
func (c Config) builtImages() ([]string, error) {
	built, err := filepath.Glob(filepath.Join(c.Bin, "images", "*.tar"))
	if err != nil {
		return nil, fmt.Errorf("list images: %w", err)
	}
	return slices.DeleteFunc(built, func(file string) bool { return filepath.Base(file) == hubImage }), nil
}

func (l *Lab) startNode(ctx context.Context, name string) error {
	c, err := l.nodeConfig(name)
	if err != nil {
		return err
	}
	if err := node.Start(ctx, c); err != nil {
		return err
	}
	l.log.printf("  %s runs", name)
	if err := c.Import(ctx, c.Images...); err != nil {
		return err
	}
	l.log.printf("  %s has its images", name)
	return nil
}

// enough adds the lowest free names until there are n nodes.
func enough(nodes []string, n int) []string {
	for p := fabric.Port(1); len(nodes) < n && p <= fabric.MaxIndex; p++ {
		if name := nodeName(p); !slices.Contains(nodes, name) {
			nodes = append(nodes, name)
		}
	}
	return nodes
}
