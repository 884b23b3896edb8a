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

// FreePort finds a port for the API server, which cannot choose one by itself. It
// looks below the kernel's range for outgoing connections (32768 and up), so that
// none of those takes the port before the API server does.
func FreePort(addr netip.Addr) (uint16, error) {
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

// FreeAddress finds an address of the loopback network that most likely nobody else has,
// with a free port: what runs side by side cannot take it either.
func FreeAddress() (netip.AddrPort, error) {
	addr := netip.AddrFrom4([4]byte{127, byte(1 + rand.IntN(254)), byte(rand.IntN(256)), byte(1 + rand.IntN(254))})
	port, err := FreePort(addr)
	return netip.AddrPortFrom(addr, port), err
}
