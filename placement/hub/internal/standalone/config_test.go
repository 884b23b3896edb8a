// SPDX-License-Identifier: Apache-2.0

package standalone

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
)

// testConfig returns a configuration whose programs exist and do nothing.
func testConfig(t *testing.T) Config {
	t.Helper()
	bin := t.TempDir()
	for _, name := range []string{"etcd", "kube-apiserver", "kube-controller-manager"} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/false\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return Config{BinDir: bin, DataDir: filepath.Join(t.TempDir(), "hub"), Address: net.IPv4(127, 0, 0, 1), Port: 6443}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		change func(*Config)
		want   string
	}{
		"Good":     {reason: "all fields are valid", change: func(*Config) {}},
		"Address":  {reason: "agents need an address to dial", change: func(c *Config) { c.Address = nil }, want: "--address"},
		"Anything": {reason: "agents cannot dial the unspecified address", change: func(c *Config) { c.Address = net.IPv4zero }, want: "--address"},
		"Listen":   {reason: "the API server can listen on all addresses", change: func(c *Config) { c.Listen = net.IPv4zero }},
		"NoPort":   {reason: "agents need a port to dial", change: func(c *Config) { c.Port = 0 }, want: "--port: 0 must be from 1 to 65535"},
		"NoFolder": {reason: "the data needs a folder", change: func(c *Config) { c.DataDir = "" }, want: "--data-dir"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := testConfig(t)
			tc.change(&c)
			if err := c.Validate(); tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("%s: got %v, want %q", tc.reason, err, tc.want)
			}
		})
	}
}

// Only one hub at a time can lock the folder, and the next one removes the sockets of a killed etcd.
func TestLock(t *testing.T) {
	t.Parallel()
	c := testConfig(t)
	first, err := c.lockDataDir(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.lockDataDir(t.Context()); err == nil || !strings.Contains(err.Error(), c.DataDir) {
		t.Errorf("a second hub: got %v, want an error with the folder", err)
	}
	if err := os.WriteFile(c.dataPath(etcdSocket), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	second, err := c.lockDataDir(t.Context())
	if err != nil {
		t.Fatalf("the lock was released: %v", err)
	}
	defer second.Close()
	if _, err := os.Stat(c.dataPath(etcdSocket)); !os.IsNotExist(err) {
		t.Errorf("a stale socket: got %v, want that it is gone", err)
	}
}

// The CA stays over restarts, because agents trust it. It signs the other certificates.
func TestCertificates(t *testing.T) {
	t.Parallel()
	c := testConfig(t)
	lock, err := c.lockDataDir(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	var authorities [2]string
	for i := range authorities {
		if err := c.writeCredentials(); err != nil {
			t.Fatal(err)
		}
		raw, err := os.ReadFile(c.dataPath("ca.crt"))
		if err != nil {
			t.Fatal(err)
		}
		authorities[i] = string(raw)
	}
	if authorities[0] != authorities[1] {
		t.Error("the CA changed with a restart")
	}
	for _, name := range []string{"ca.key", "admin.key", "hub.key", "server.key", "accounts.key", "admin.kubeconfig", "front-proxy-ca.key", "front-proxy.key"} {
		if info, err := os.Stat(c.dataPath(name)); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v, want a file that only its owner can read", name, info, err)
		}
	}
	admin, err := clientcmd.BuildConfigFromFlags("", c.KubeconfigPath())
	if err != nil || admin.Host != "https://127.0.0.1:6443" || len(admin.CertData) == 0 {
		t.Errorf("admin: %v, %v", admin, err)
	}
	hub, err := c.HubRESTConfig()
	if err != nil || hub.CertFile != c.dataPath("hub.crt") || len(hub.CertData) > 0 {
		t.Errorf("the hub must use its own certificate: %v, %v", hub, err)
	}
}

// The error for an invalid key has the file. The key is not replaced: the user may be able to restore it.
func TestBrokenAuthority(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "ca.key"), []byte("invalid"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := loadOrCreateCA(dir, "ca", "patchbay-hub"); err == nil || !strings.Contains(err.Error(), filepath.Join(dir, "ca.key")) {
		t.Errorf("got %v, want an error with the file", err)
	}
}
