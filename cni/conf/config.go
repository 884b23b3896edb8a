// SPDX-License-Identifier: Apache-2.0

package conf

import (
	"cmp"
	"encoding/json"

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

// Parse reads and checks a configuration and fills in the defaults.
func Parse(data []byte) (*Config, error) {
	c := &Config{}
	if err := decode(data, c); err != nil {
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
