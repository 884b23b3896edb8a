// SPDX-License-Identifier: Apache-2.0

package install

import (
	"encoding/json"
	"fmt"

	"github.com/patchbay-cni/patchbay/cni/conf"
)

// DefaultCNIVersion is spoken by every containerd and CRI-O that is in use:
// containerd before 2.0 refuses results in 1.1.0. With 1.1.0 newer runtimes ask
// for STATUS as well.
const DefaultCNIVersion = "1.0.0"

// Settings are the keys of our configuration that an installation chooses;
// empty ones are left out and have their defaults.
type Settings struct {
	// CNIVersion is one of conf.Versions; empty is DefaultCNIVersion.
	CNIVersion string
	// NamingScheme, CNIDir and Socket are conf.Config's.
	NamingScheme, CNIDir, Socket string
}

// configList is a CNI configuration list (CNI 1.1, section 1).
type configList struct {
	CNIVersion string `json:"cniVersion"`
	Name       string `json:"name"`
	// DisableCheck keeps runtimes from CHECK, which we do not have yet.
	DisableCheck bool          `json:"disableCheck"`
	Plugins      []pluginEntry `json:"plugins"`
}

// pluginEntry is our plugin in the list.
type pluginEntry struct {
	Type         string `json:"type"`
	NamingScheme string `json:"namingScheme,omitempty"`
	CNIDir       string `json:"cniDir,omitempty"`
	Socket       string `json:"socket,omitempty"`
}

// Conflist writes the configuration list for the runtime, or says which setting
// the plugin would refuse.
func Conflist(s Settings) ([]byte, error) {
	if s.CNIVersion == "" {
		s.CNIVersion = DefaultCNIVersion
	}
	e := pluginEntry{Type: conf.PluginType, NamingScheme: s.NamingScheme, CNIDir: s.CNIDir, Socket: s.Socket}
	if err := validate(s.CNIVersion, e); err != nil {
		return nil, err
	}
	doc, err := json.MarshalIndent(configList{
		CNIVersion: s.CNIVersion, Name: conf.PluginType, DisableCheck: true, Plugins: []pluginEntry{e},
	}, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode configuration list: %w", err)
	}
	return append(doc, '\n'), nil
}

// validate runs the plugin's own check on what a runtime derives from the list.
func validate(cniVersion string, e pluginEntry) error {
	derived, err := json.Marshal(struct {
		pluginEntry
		CNIVersion string `json:"cniVersion"`
		Name       string `json:"name"`
	}{e, cniVersion, conf.PluginType})
	if err != nil {
		return fmt.Errorf("encode configuration: %w", err)
	}
	if _, err := conf.ParseConfig(derived); err != nil {
		return fmt.Errorf("check configuration: %w", err)
	}
	return nil
}
