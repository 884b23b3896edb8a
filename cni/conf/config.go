// SPDX-License-Identifier: Apache-2.0

package conf

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
)

// PluginType is the value of "type" in our configurations, and the file name
// of the plugin.
const PluginType = "patchbay"

// DefaultCNIDir is where delegates' configurations are unless cniDir says
// otherwise.
const DefaultCNIDir = "/etc/cni/net.d"

// Values of namingScheme.
const (
	// NamingIndexed names interfaces <container_prefix><index>.
	NamingIndexed = ""
	// NamingLegacy takes container_prefix itself as the name, as DANM does.
	NamingLegacy = "legacy"
)

// Config is one network configuration (CNI 1.1, section 1), as the runtime
// derives it from a configuration list. Its own keys come first.
type Config struct {
	// NamingScheme is NamingIndexed or NamingLegacy.
	NamingScheme string `json:"namingScheme"`
	// CNIDir holds the configurations that static delegates run with.
	CNIDir string `json:"cniDir"`
	// Socket overrides the path of the daemon's unix socket.
	Socket string `json:"socket"`

	// CNIVersion is one of Versions; the result is in this version.
	CNIVersion string `json:"cniVersion"`
	// Name of the CNI network: records are kept under it.
	Name string `json:"name"`
	// Type is PluginType.
	Type string `json:"type"`
	// PrevResult is the result of the plugin before ours in a list, and on
	// CHECK and DEL our own; empty when there is none.
	PrevResult json.RawMessage `json:"prevResult"`
	// RuntimeConfig are the values of the capabilities that we asked for.
	RuntimeConfig json.RawMessage `json:"runtimeConfig"`
	// ValidAttachments are the attachments that GC must keep.
	ValidAttachments []Attachment `json:"cni.dev/valid-attachments"`

	// The rest is the specification's or libcni's. It is accepted, so that a
	// key which is legal everywhere does not break ours, and has no effect.
	Capabilities json.RawMessage `json:"capabilities"`
	Args         json.RawMessage `json:"args"`
	IPMasq       json.RawMessage `json:"ipMasq"`
	IPAM         json.RawMessage `json:"ipam"`
	DNS          json.RawMessage `json:"dns"`
	DisableCheck json.RawMessage `json:"disableCheck"`
	DisableGC    json.RawMessage `json:"disableGC"`
}

// Attachment is one interface that the runtime knows of (CNI 1.1, GC).
type Attachment struct {
	// ContainerID is the sandbox.
	ContainerID string `json:"containerID"`
	// IfName is the interface's name in it.
	IfName string `json:"ifname"`
}

// ParseConfig reads and checks a configuration and fills in the defaults.
func ParseConfig(data []byte) (*Config, error) {
	c := &Config{}
	if err := decodeConfig(data, c); err != nil {
		return nil, err
	}
	c.CNIDir = cmp.Or(c.CNIDir, DefaultCNIDir)
	c.Socket = cmp.Or(c.Socket, wire.DefaultSocket)
	for _, check := range []func(*Config) error{checkVersion, checkNames, checkNaming, checkPaths} {
		if err := check(c); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// reservedPrefix is the prefix of keys that the specification keeps for runtimes.
// One that we do not know comes from a newer runtime and is not a mistake.
const reservedPrefix = "cni.dev/"

// decodeConfig fills c and refuses anything but one object with keys that it has.
func decodeConfig(data []byte, c *Config) error {
	var keys map[string]json.RawMessage
	if err := decodeSingle(data, &keys); err != nil {
		return wire.Errorf(wire.CodeDecode, "decode network configuration: %w", err)
	}
	if keys == nil {
		return wire.Errorf(wire.CodeDecode, "decode network configuration: null, want an object")
	}
	if err := checkKeys(keys); err != nil {
		return err
	}
	err := json.Unmarshal(data, c)
	if bad := (*json.UnmarshalTypeError)(nil); errors.As(err, &bad) {
		return wire.Errorf(wire.CodeConfig, "network configuration: %s: a JSON %s, want %s", bad.Field, bad.Value, bad.Type)
	}
	if err != nil {
		return wire.Errorf(wire.CodeDecode, "decode network configuration: %w", err)
	}
	return nil
}

// decodeSingle decodes data, which must hold one JSON document and no more.
func decodeSingle(data []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	if err := d.Decode(v); err != nil {
		if errors.Is(err, io.EOF) {
			return errors.New("it is empty")
		}
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more than one JSON document")
	}
	return nil
}

// checkKeys refuses the first key, in order, that Config does not have. Keys are
// compared exactly: encoding/json would take "CNIDIR" for cniDir.
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
	return wire.Errorf(wire.CodeField, "network configuration: unknown key %q with value %s; known are %s",
		first, truncate(string(keys[first])), strings.Join(fields, ", "))
}

// configKeys lists Config's keys, so that the list cannot fall behind the type.
func configKeys() []string {
	t := reflect.TypeFor[Config]()
	names := make([]string, t.NumField())
	for i := range names {
		names[i] = t.Field(i).Tag.Get("json")
	}
	return names
}

// checkVersion comes first: in an unknown version other keys mean who knows what.
func checkVersion(c *Config) error {
	if c.CNIVersion == "" {
		return wire.Errorf(wire.CodeVersion, "network configuration: cniVersion is missing; supported are %s",
			strings.Join(SupportedVersions(), ", "))
	}
	if !slices.Contains(SupportedVersions(), c.CNIVersion) {
		return wire.Errorf(wire.CodeVersion, "network configuration: cniVersion %q is not supported; supported are %s",
			truncate(c.CNIVersion), strings.Join(SupportedVersions(), ", "))
	}
	return nil
}

// checkNames holds the specification's rule for network names, which end up in
// the journal's records.
func checkNames(c *Config) error {
	if !ValidName(c.Name) {
		return wire.Errorf(wire.CodeConfig,
			"network configuration: name %q must start with a letter or digit and go on with these, '_', '.' or '-'",
			truncate(c.Name))
	}
	if c.Type != PluginType {
		return wire.Errorf(wire.CodeConfig, "network configuration: type %q, want %q", truncate(c.Type), PluginType)
	}
	return nil
}

func checkNaming(c *Config) error {
	if c.NamingScheme != NamingIndexed && c.NamingScheme != NamingLegacy {
		return wire.Errorf(wire.CodeConfig, "network configuration: namingScheme %q, want %q or %q",
			truncate(c.NamingScheme), NamingIndexed, NamingLegacy)
	}
	return nil
}

// maxSocket is the longest path of a unix socket in bytes (unix(7): 108 with
// the closing zero).
const maxSocket = 107

// checkPaths wants paths that mean the same in the runtime's working directory
// as in the daemon's.
func checkPaths(c *Config) error {
	for _, p := range []struct{ key, path string }{{"cniDir", c.CNIDir}, {"socket", c.Socket}} {
		if !filepath.IsAbs(p.path) || filepath.Clean(p.path) != p.path || strings.ContainsRune(p.path, 0) {
			return wire.Errorf(wire.CodeConfig, "network configuration: %s %q must be an absolute path without .. or //",
				p.key, truncate(p.path))
		}
	}
	if len(c.Socket) > maxSocket {
		return wire.Errorf(wire.CodeConfig, "network configuration: socket %q: %d bytes, at most %d fit a unix socket",
			truncate(c.Socket), len(c.Socket), maxSocket)
	}
	return nil
}

// SupportedVersions returns the versions of the CNI specification that the plugin
// speaks, oldest first.
func SupportedVersions() []string { return []string{"0.3.1", "0.4.0", "1.0.0", "1.1.0"} }

// LatestVersion is the newest of Versions.
const LatestVersion = "1.1.0"

// HasCommand reports whether a version of the specification has a command: CHECK came
// with 0.4.0, GC and STATUS with 1.1.0.
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
func truncate(s string) string {
	const most = 80
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
