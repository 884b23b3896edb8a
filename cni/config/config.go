// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/patchbay-cni/patchbay/cni/wire"
	"github.com/patchbay-cni/patchbay/internal/text"
)

// PluginType is the value of "type" in the plugin's configurations, and its file name.
const PluginType = "patchbay"

// defaultCNIDir is the default of cniDir, the directory of delegates' configurations.
const defaultCNIDir = "/etc/cni/net.d"

// Values of namingScheme.
const (
	// namingIndexed names interfaces <container_prefix><index>.
	namingIndexed = ""
	// namingLegacy names an interface container_prefix itself, as DANM does.
	namingLegacy = "legacy"
)

// Config is a network configuration (CNI 1.1, section 1) that the runtime derives from a
// configuration list. Patchbay's own keys come first.
type Config struct {
	// NamingScheme is NamingIndexed or NamingLegacy.
	NamingScheme string `json:"namingScheme"`
	// CNIDir is the directory of delegates' configurations.
	CNIDir string `json:"cniDir"`
	// Socket is the path of the daemon's unix socket.
	Socket string `json:"socket"`

	// CNIVersion is one of SupportedVersions; the result is in this version.
	CNIVersion string `json:"cniVersion"`
	// Name of the CNI network.
	Name string `json:"name"`
	// Type is PluginType.
	Type string `json:"type"`
	// PrevResult is the result of the previous plugin in a list, and on CHECK and DEL the
	// plugin's own; empty for none.
	PrevResult json.RawMessage `json:"prevResult"`
	// RuntimeConfig are the values of the requested capabilities.
	RuntimeConfig json.RawMessage `json:"runtimeConfig"`
	// ValidAttachments are the attachments that GC must keep.
	ValidAttachments []Attachment `json:"cni.dev/valid-attachments"`

	// The other keys of the specification and of libcni are accepted and have no effect.
	Capabilities json.RawMessage `json:"capabilities"`
	Args         json.RawMessage `json:"args"`
	IPMasq       json.RawMessage `json:"ipMasq"`
	IPAM         json.RawMessage `json:"ipam"`
	DNS          json.RawMessage `json:"dns"`
	DisableCheck json.RawMessage `json:"disableCheck"`
	DisableGC    json.RawMessage `json:"disableGC"`
}

// Attachment is an interface that the runtime uses (CNI 1.1, GC).
type Attachment struct {
	// ContainerID identifies the sandbox.
	ContainerID string `json:"containerID"`
	// IfName is the interface's name in the sandbox.
	IfName string `json:"ifname"`
}

// ParseConfig parses and validates a configuration, and sets the defaults.
func ParseConfig(data []byte) (*Config, error) {
	c := &Config{}
	if err := decodeConfig(data, c); err != nil {
		return nil, err
	}
	c.CNIDir = cmp.Or(c.CNIDir, defaultCNIDir)
	c.Socket = cmp.Or(c.Socket, wire.DefaultSocket)
	for _, check := range []func(*Config) error{checkVersion, checkNames, checkNaming, checkPaths} {
		if err := check(c); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// reservedPrefix is the prefix of keys that the specification reserves for runtimes. An unknown one
// comes from a newer runtime and is not an error.
const reservedPrefix = "cni.dev/"

// decodeConfig decodes data, which must be one JSON object with known keys, into c.
func decodeConfig(data []byte, c *Config) error {
	var keys map[string]json.RawMessage
	if err := decodeSingle(data, &keys); err != nil {
		return wire.Errorf(wire.CodeDecode, "decode network configuration: %w", err)
	}
	if keys == nil {
		return wire.Errorf(wire.CodeDecode, "decode network configuration: null must be an object")
	}
	if err := checkKeys(keys); err != nil {
		return err
	}
	err := json.Unmarshal(data, c)
	if bad := (*json.UnmarshalTypeError)(nil); errors.As(err, &bad) {
		return wire.Errorf(wire.CodeConfig, "network configuration: %s: a JSON %s must be of type %s", bad.Field, bad.Value, bad.Type)
	}
	if err != nil {
		return wire.Errorf(wire.CodeDecode, "decode network configuration: %w", err)
	}
	return nil
}

// decodeSingle decodes data, which must be a single JSON document.
func decodeSingle(data []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	if err := d.Decode(v); err != nil {
		if errors.Is(err, io.EOF) {
			return errors.New("input is empty: must be a JSON object")
		}
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("input must be a single JSON document")
	}
	return nil
}

// checkKeys returns an error for the first key, in order, that Config does not have. It compares
// keys exactly: encoding/json would accept "CNIDIR" for cniDir.
func checkKeys(keys map[string]json.RawMessage) error {
	fields := configKeys()
	var unknown []string
	for key := range keys {
		if !slices.Contains(fields, key) && !strings.HasPrefix(key, reservedPrefix) {
			unknown = append(unknown, key)
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	first := slices.Min(unknown)
	return wire.Errorf(wire.CodeField, "network configuration: key %q with value %s is unknown: must be one of %s",
		first, truncate(string(keys[first])), strings.Join(fields, ", "))
}

// configKeys returns the keys of Config.
func configKeys() []string {
	t := reflect.TypeFor[Config]()
	names := make([]string, t.NumField())
	for i := range names {
		names[i] = t.Field(i).Tag.Get("json")
	}
	return names
}

// checkVersion checks cniVersion before the other keys, whose meaning depends on it.
func checkVersion(c *Config) error {
	if c.CNIVersion == "" {
		return wire.Errorf(wire.CodeVersion, "network configuration: cniVersion must be set to one of %s",
			strings.Join(SupportedVersions(), ", "))
	}
	if !slices.Contains(SupportedVersions(), c.CNIVersion) {
		return wire.Errorf(wire.CodeVersion, "network configuration: cniVersion %q must be one of %s",
			truncate(c.CNIVersion), strings.Join(SupportedVersions(), ", "))
	}
	return nil
}

// checkNames applies the specification's rule for network names, which become part of the journal.
func checkNames(c *Config) error {
	if !isValidName(c.Name) {
		return wire.Errorf(wire.CodeConfig,
			"network configuration: name %q must be letters, digits, '_', '.' or '-' and start with a letter or digit",
			truncate(c.Name))
	}
	if c.Type != PluginType {
		return wire.Errorf(wire.CodeConfig, "network configuration: type %q must be %q", truncate(c.Type), PluginType)
	}
	return nil
}

func checkNaming(c *Config) error {
	if c.NamingScheme != namingIndexed && c.NamingScheme != namingLegacy {
		return wire.Errorf(wire.CodeConfig, "network configuration: namingScheme %q must be %q or %q",
			truncate(c.NamingScheme), namingIndexed, namingLegacy)
	}
	return nil
}

// maxSocket is the longest path of a unix socket in bytes (unix(7): 108 with the final zero).
const maxSocket = 107

// checkPaths checks that paths do not depend on the working directory, which differs between
// runtime and daemon.
func checkPaths(c *Config) error {
	for _, p := range []struct{ key, path string }{{"cniDir", c.CNIDir}, {"socket", c.Socket}} {
		if !filepath.IsAbs(p.path) || filepath.Clean(p.path) != p.path || strings.ContainsRune(p.path, 0) {
			return wire.Errorf(wire.CodeConfig, "network configuration: %s %q must be an absolute path without .. or //",
				p.key, truncate(p.path))
		}
	}
	if len(c.Socket) > maxSocket {
		return wire.Errorf(wire.CodeConfig, "network configuration: socket %q has %d bytes: must have at most %d",
			truncate(c.Socket), len(c.Socket), maxSocket)
	}
	return nil
}

// SupportedVersions returns the versions of the CNI specification that the plugin supports, oldest
// first.
func SupportedVersions() []string { return []string{"0.3.1", "0.4.0", "1.0.0", "1.1.0"} }

// LatestVersion is the newest of SupportedVersions.
const LatestVersion = "1.1.0"

// HasCommand reports whether a version of the specification has a command: CHECK was added in
// 0.4.0, GC and STATUS in 1.1.0.
func HasCommand(version, command string) bool {
	switch command {
	case "CHECK":
		return version != "0.3.1"
	case "GC", "STATUS":
		return version == LatestVersion
	}
	return true
}

// truncate shortens a value for a message.
func truncate(s string) string { return text.Truncate(s, 80) }
