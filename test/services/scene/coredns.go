// SPDX-License-Identifier: Apache-2.0

package scene

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/patchbay-cni/patchbay/test/lab/process"
	"github.com/patchbay-cni/patchbay/test/source"
)

// Domain is the cluster's in DNS.
const Domain = "cluster.local"

// CoreDNSConfig says how a CoreDNS runs.
type CoreDNSConfig struct {
	// Dir is a folder for its files, Kubeconfig a file by which it reads the cluster.
	Dir, Kubeconfig string
	// Address and port are where it answers.
	Address netip.AddrPort
	// Netns is the network namespace it runs in; empty means the caller's.
	Netns string
}

// CoreDNS starts a CoreDNS for a cluster. It answers for names a moment later.
func CoreDNS(config CoreDNSConfig) (process.ID, error) {
	program, err := source.Path("bin", "coredns")
	if err != nil {
		return process.ID{}, err
	}
	if _, err := os.Stat(program); err != nil {
		return process.ID{}, fmt.Errorf("find CoreDNS (make coredns builds it): %w", err)
	}
	corefile := fmt.Sprintf(`.:%d {
    bind %s
    errors
    kubernetes %s {
        kubeconfig %s
        ttl 0
    }
}
`, config.Address.Port(), config.Address.Addr(), Domain, config.Kubeconfig)
	file := filepath.Join(config.Dir, "Corefile")
	if err := os.WriteFile(file, []byte(corefile), 0o600); err != nil {
		return process.ID{}, fmt.Errorf("write CoreDNS's configuration: %w", err)
	}
	id, err := process.Start(process.Spec{
		Args: []string{program, "-conf", file}, Log: filepath.Join(config.Dir, "coredns.log"), Netns: config.Netns, DieWithParent: true,
	})
	if err != nil {
		return process.ID{}, fmt.Errorf("start CoreDNS: %w", err)
	}
	return id, nil
}

// Resolver asks a DNS server, and no file of this machine.
func Resolver(server netip.AddrPort) *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "udp", server.String())
	}}
}

// FreePort is an address on the loopback where nothing listens on UDP or TCP.
func FreePort(ctx context.Context) (netip.AddrPort, error) {
	for range 20 {
		text, err := freeAddress(ctx)
		if err != nil {
			return netip.AddrPort{}, err
		}
		if u, err := (&net.ListenConfig{}).ListenPacket(ctx, "udp", text); err == nil {
			return netip.MustParseAddrPort(text), u.Close()
		}
	}
	return netip.AddrPort{}, errors.New("find a port that is free on UDP and TCP: none of 20")
}
