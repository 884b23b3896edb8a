// SPDX-License-Identifier: Apache-2.0

package install

import (
	"encoding/json"
	"fmt"

	"github.com/patchbay-cni/patchbay/cni/config"
)

// DefaultCNIVersion is supported by all containerd and CRI-O releases in use. containerd before 2.0
// rejects results in 1.1.0. With 1.1.0, newer runtimes also send STATUS.
const DefaultCNIVersion = "1.0.0"

// Settings has the configurable keys of the configuration. An empty one has its default.
type Settings struct {
	// CNIVersion is one of config.Versions. Empty means DefaultCNIVersion.
	CNIVersion string
	// NamingScheme, CNIDir and Socket are those of config.Config.
	NamingScheme, CNIDir, Socket string
}

// configList is a CNI configuration list (CNI 1.1, section 1).
type configList struct {
	CNIVersion string `json:"cniVersion"`
	Name       string `json:"name"`
	// DisableCheck keeps runtimes from sending CHECK, which the plugin does not implement.
	DisableCheck bool          `json:"disableCheck"`
	Plugins      []pluginEntry `json:"plugins"`
}

// pluginEntry is the entry of the plugin in the list.
type pluginEntry struct {
	Type         string `json:"type"`
	NamingScheme string `json:"namingScheme,omitempty"`
	CNIDir       string `json:"cniDir,omitempty"`
	Socket       string `json:"socket,omitempty"`
	// Capabilities make the runtime pass what kubelet wants of a Pod's first interface, such as host ports.
	// The plugins of a delegate's list get what they declare themselves.
	Capabilities map[string]bool `json:"capabilities"`
}

// capabilities are those that containerd and CRI-O know, without Pods' annotations, which the journal would
// store.
func capabilities() map[string]bool {
	return map[string]bool{"bandwidth": true, "dns": true, "ipRanges": true, "portMappings": true}
}

// Conflist returns the configuration list for the runtime. The error names an invalid setting.
func Conflist(s Settings) ([]byte, error) {
	if s.CNIVersion == "" {
		s.CNIVersion = DefaultCNIVersion
	}
	e := pluginEntry{Type: config.PluginType, NamingScheme: s.NamingScheme, CNIDir: s.CNIDir, Socket: s.Socket, Capabilities: capabilities()}
	if err := validate(s.CNIVersion, e); err != nil {
		return nil, err
	}
	doc, err := json.MarshalIndent(configList{
		CNIVersion: s.CNIVersion, Name: config.PluginType, DisableCheck: true, Plugins: []pluginEntry{e},
	}, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode configuration list: %w", err)
	}
	return append(doc, '\n'), nil
}

// validate parses the configuration that a runtime derives from the list, as the plugin does.
func validate(cniVersion string, e pluginEntry) error {
	derived, err := json.Marshal(struct {
		pluginEntry
		CNIVersion string `json:"cniVersion"`
		Name       string `json:"name"`
	}{e, cniVersion, config.PluginType})
	if err != nil {
		return fmt.Errorf("encode configuration: %w", err)
	}
	if _, err := config.ParseConfig(derived); err != nil {
		return fmt.Errorf("check configuration: %w", err)
	}
	return nil
}
