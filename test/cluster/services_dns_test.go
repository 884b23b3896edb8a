// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package cluster

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/patchbay-cni/patchbay/test/lab/fabric"
	"github.com/patchbay-cni/patchbay/test/lab/netns"
	"github.com/patchbay-cni/patchbay/test/services/scene"
)

// coreDNS runs a cluster's DNS server where the API server is, and returns its address.
func (c *cluster) coreDNS(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	kubeconfig := filepath.Join(dir, "kubeconfig")
	out, err := c.lab.Kubectl(t.Context(), "config", "view", "--raw", "--flatten")
	if err == nil {
		err = os.WriteFile(kubeconfig, []byte(out), 0o600)
	}
	if err != nil {
		t.Fatalf("make a kubeconfig for CoreDNS: %v", err)
	}
	id, err := scene.CoreDNS(scene.CoreDNSConfig{
		Dir: dir, Kubeconfig: kubeconfig, Netns: c.lab.Netns(), Address: netip.AddrPortFrom(fabric.Gateway(), 53),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			text, _ := os.ReadFile(filepath.Join(dir, "coredns.log"))
			t.Logf("CoreDNS said:\n%s", text)
		}
		if err := id.Kill(context.WithoutCancel(t.Context())); err != nil {
			t.Errorf("end CoreDNS: %v", err)
		}
	})
	return fabric.Gateway().String()
}

// lookup asks CoreDNS for the Service's addresses, as sorted.
func (s *serviceFixture) lookup(ctx context.Context) ([]netip.Addr, error) {
	resolver := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return netns.Dial(ctx, s.lab.Netns(), net.Dialer{}, "udp", net.JoinHostPort(s.dns, "53"))
	}}
	found, err := resolver.LookupNetIP(ctx, "ip4", s.dnsName()+".")
	if err != nil && !strings.Contains(err.Error(), "no such host") {
		return nil, fmt.Errorf("look %s up: %w", s.dnsName(), err)
	}
	for i := range found {
		found[i] = found[i].Unmap()
	}
	slices.SortFunc(found, netip.Addr.Compare)
	return found, nil
}
