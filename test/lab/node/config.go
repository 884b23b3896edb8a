// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"path/filepath"

	"github.com/patchbay-cni/patchbay/test/lab/fabric"
	"github.com/patchbay-cni/patchbay/test/lab/uml"
)

// Config describes a node.
type Config struct {
	// Name is the node's host name and its name in Kubernetes.
	Name string
	// Port is its place in the fabric.
	Port fabric.Port
	// Fabric connects it.
	Fabric fabric.Fabric
	// Dir holds its logs and configuration, Disk is the image of its disk.
	Dir, Disk string
	// Kernel that the node boots.
	Kernel uml.Kernel
	// Memory in MiB.
	Memory int
	// Init is a program whose main hands over to guest.Main.
	Init string
	// Bin is the folder with kubelet.
	Bin string
	// Images are archives for containerd.
	Images []string
	// Kubeconfig is the kubelet's; ClientCA signs those who may talk to it.
	Kubeconfig, ClientCA []byte
	// Logf reports what is unusual; nil reports nothing.
	Logf func(format string, args ...any)
}

// Names in a node's folder.
const (
	containerdConfig = "containerd.toml"
	kubeletConfig    = "kubelet.json"
	kubeletClient    = "kubelet.kubeconfig"
	clientCA         = "client-ca.crt"
	networkBatch     = "network.ip"
	podNetwork       = "pods.conflist"
	containerdLog    = "containerd.log"
	kubeletLog       = "kubelet.log"
)

func (c Config) logf(format string, args ...any) {
	if c.Logf != nil {
		c.Logf(format, args...)
	}
}

func (c Config) path(name string) string { return filepath.Join(c.Dir, name) }

// agentPort is where the node's agent listens.
const agentPort = 1

func (c Config) agentAddress() string {
	return fmt.Sprintf("%s:%d", c.Port.Agent().Prefix.Addr(), agentPort)
}
