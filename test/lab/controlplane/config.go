// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
)

// maxSocketPath is the longest path that a unix socket can have (unix(7), less the
// closing zero byte).
const maxSocketPath = 107

// Config says what to run. Only Dir and Bin have no default.
type Config struct {
	// Dir is the folder for everything of this control plane, an absolute path of
	// at most 96 bytes (etcd's socket is in it).
	Dir string
	// Bin is the folder that scripts/build-kubernetes fills.
	Bin string
	// Netns is the named network namespace to run in; empty means the caller's own.
	Netns string
	// Address is where the API server listens; 127.0.0.1 by default.
	Address netip.Addr
	// Port is the API server's port; by default 6443 in a namespace, else one that
	// is free.
	Port uint16
	// ServiceCIDR is the range of cluster IPs; 10.96.0.0/16 by default.
	ServiceCIDR netip.Prefix
	// PodCIDR makes the controller manager cut a range out of it for every node.
	// By default it allocates none.
	PodCIDR netip.Prefix

	// ControllerManager and Scheduler run these parts too. Without the controller
	// manager nothing makes service accounts, so their admission plugin is off and
	// Pods can be created all the same.
	ControllerManager, Scheduler bool

	// Etcd is the client URL of a running etcd to use; by default one is started.
	Etcd string
	// EtcdPrefix is the key prefix, by which clusters share one etcd; /registry by default.
	EtcdPrefix string
	// Durable makes etcd sync to disk before it answers. Only who pulls the plug
	// needs it: without it, killed processes lose nothing either.
	Durable bool

	// Tied ends all processes with the caller, however it ends (for tests).
	Tied bool
	// Tokens are accepted as bearer tokens.
	Tokens []Token
	// ExtraArgs are appended to a part's command line.
	ExtraArgs map[Part][]string
}

// Token is a static bearer token for a user. Other identities get a client
// certificate (Kubeconfig) or are impersonated by the admin.
type Token struct {
	Token, User, UID string
	Groups           []string
}

// withDefaults fills in what the caller left out and refuses what cannot work.
func (c Config) withDefaults() (Config, error) {
	if !c.Address.IsValid() {
		c.Address = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	if !c.ServiceCIDR.IsValid() {
		c.ServiceCIDR = netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 96, 0, 0}), 16)
	}
	if c.EtcdPrefix == "" {
		c.EtcdPrefix = "/registry"
	}
	if err := c.check(); err != nil {
		return c, err
	}
	switch {
	case c.Port != 0:
	case c.Netns != "":
		c.Port = 6443
	default:
		port, err := FreePort(c.Address)
		if err != nil {
			return c, err
		}
		c.Port = port
	}
	return c, nil
}

func (c Config) check() error {
	if !filepath.IsAbs(c.Dir) {
		return fmt.Errorf("check folder %q: not an absolute path", c.Dir)
	}
	if len(c.path(etcdSocket)) > maxSocketPath {
		return fmt.Errorf("check folder %s: too long for a unix socket", c.Dir)
	}
	for _, part := range c.parts() {
		if _, err := exec.LookPath(c.program(part)); err != nil {
			return fmt.Errorf("find %s (scripts/install-packages and scripts/build-kubernetes bring it): %w", part, err)
		}
	}
	return nil
}

func (c Config) path(name string) string { return filepath.Join(c.Dir, name) }

func (c Config) save() error {
	raw, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return fmt.Errorf("encode configuration: %w", err)
	}
	return writeFile(c.path(configFile), raw, 0o600)
}

func load(dir string) (Config, error) {
	raw, err := os.ReadFile(filepath.Join(dir, configFile))
	if errors.Is(err, os.ErrNotExist) {
		return Config{}, fmt.Errorf("open %s: %w", dir, ErrNone)
	}
	if err != nil {
		return Config{}, fmt.Errorf("open %s: %w", dir, err)
	}
	var c Config
	if err := json.Unmarshal(raw, &c); err != nil {
		return Config{}, fmt.Errorf("decode %s: %w", filepath.Join(dir, configFile), err)
	}
	return c, nil
}
