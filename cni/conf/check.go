// SPDX-License-Identifier: Apache-2.0

package conf

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/patchbay-cni/patchbay/cni/wire"
)

// maxSocket is the longest path of a unix socket in bytes (unix(7): 108 with
// the closing zero).
const maxSocket = 107

// Versions returns the versions of the CNI specification that the plugin
// speaks, oldest first.
func Versions() []string { return []string{"0.3.1", "0.4.0", "1.0.0", "1.1.0"} }

// Latest is the newest of Versions.
const Latest = "1.1.0"

// Knows reports whether a version of the specification has a command: CHECK came
// with 0.4.0, GC and STATUS with 1.1.0.
func Knows(version, command string) bool {
	switch command {
	case "CHECK":
		return version != "0.3.1"
	case "GC", "STATUS":
		return version == Latest
	}
	return true
}

// checkVersion comes first: in an unknown version other keys mean who knows what.
func checkVersion(c *Config) error {
	if c.CNIVersion == "" {
		return wire.Errorf(wire.CodeVersion, "network configuration: cniVersion is missing; supported are %s",
			strings.Join(Versions(), ", "))
	}
	if !slices.Contains(Versions(), c.CNIVersion) {
		return wire.Errorf(wire.CodeVersion, "network configuration: cniVersion %q is not supported; supported are %s",
			clip(c.CNIVersion), strings.Join(Versions(), ", "))
	}
	return nil
}

// checkNames holds the specification's rule for network names, which end up in
// the journal's records.
func checkNames(c *Config) error {
	if !ValidName(c.Name) {
		return wire.Errorf(wire.CodeConfig,
			"network configuration: name %q must start with a letter or digit and go on with these, '_', '.' or '-'",
			clip(c.Name))
	}
	if c.Type != PluginType {
		return wire.Errorf(wire.CodeConfig, "network configuration: type %q, want %q", clip(c.Type), PluginType)
	}
	return nil
}

func checkNaming(c *Config) error {
	if c.NamingScheme != NamingIndexed && c.NamingScheme != NamingLegacy {
		return wire.Errorf(wire.CodeConfig, "network configuration: namingScheme %q, want %q or %q",
			clip(c.NamingScheme), NamingIndexed, NamingLegacy)
	}
	return nil
}

// checkPaths wants paths that mean the same in the runtime's working directory
// as in the daemon's.
func checkPaths(c *Config) error {
	for _, p := range []struct{ key, path string }{{"cniDir", c.CNIDir}, {"socket", c.Socket}} {
		if !filepath.IsAbs(p.path) || filepath.Clean(p.path) != p.path || strings.ContainsRune(p.path, 0) {
			return wire.Errorf(wire.CodeConfig, "network configuration: %s %q must be an absolute path without .. or //",
				p.key, clip(p.path))
		}
	}
	if len(c.Socket) > maxSocket {
		return wire.Errorf(wire.CodeConfig, "network configuration: socket %q: %d bytes, at most %d fit a unix socket",
			clip(c.Socket), len(c.Socket), maxSocket)
	}
	return nil
}

// ValidName reports whether s is a network name or a container ID by the
// specification: a letter or digit, then letters, digits, '_', '.', '-'. Such a
// name is safe as part of a file name.
func ValidName(s string) bool {
	for i, r := range s {
		alnum := r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z'
		if !alnum && (i == 0 || !strings.ContainsRune("_.-", r)) {
			return false
		}
	}
	return s != ""
}
