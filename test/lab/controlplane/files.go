// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
)

// Names in the folder of a control plane.
const (
	configFile  = "controlplane.json"
	adminFile   = "admin.kubeconfig"
	tokenFile   = "tokens.csv"
	etcdData    = "etcd"
	etcdSocket  = "etcd.sock:0" // etcd insists on the form host:port and then uses all of it as the name
	peerSocket  = "peer.sock:0"
	caName      = "ca"
	servingName = "apiserver"
	kubeletName = "apiserver-kubelet-client"
	accountKey  = "sa.key"
)

// writeFile replaces a file as a whole, so that a reader never sees half of it.
func writeFile(path string, data []byte, mode os.FileMode) error {
	next := path + ".new"
	err := os.WriteFile(next, data, mode)
	if err == nil {
		err = os.Rename(next, path)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// freePort finds a port for the API server, which cannot choose one by itself. It
// looks below the kernel's range for outgoing connections (32768 and up), so that
// none of those takes the port before the API server does.
func freePort(addr netip.Addr) (uint16, error) {
	const low, high, tries = 20000, 32000, 100
	var last error
	for range tries {
		port := uint16(low + rand.IntN(high-low))
		l, err := net.Listen("tcp", netip.AddrPortFrom(addr, port).String())
		if err == nil {
			return port, l.Close()
		}
		last = err
	}
	return 0, fmt.Errorf("find a free port on %s: %w", addr, last)
}
