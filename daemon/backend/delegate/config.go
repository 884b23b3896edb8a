// SPDX-License-Identifier: Apache-2.0

package delegate

import (
	"encoding/json"
	"fmt"
	"regexp"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/utils"
)

// plugins that one list may have; each is an execution or two.
const maxPlugins = 32

// fileName is what may become part of a path on the host. The API has the same
// rule; this is the daemon's own check.
var fileName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$`)

// parseList reads a configuration list (CNI 1.1, section 1) and checks what
// becomes a path or an executable.
func parseList(data []byte) (*libcni.NetworkConfigList, error) {
	list, err := libcni.NetworkConfFromBytes(data)
	if err != nil {
		return nil, fmt.Errorf("parse configuration list: %w", err)
	}
	if err := utils.ValidateNetworkName(list.Name); err != nil {
		return nil, fmt.Errorf("parse configuration list: name %q: %w", list.Name, err)
	}
	if len(list.Plugins) == 0 || len(list.Plugins) > maxPlugins {
		return nil, fmt.Errorf("parse configuration list %s: it has %d plugins, want 1 to %d in its key plugins",
			list.Name, len(list.Plugins), maxPlugins)
	}
	for i, p := range list.Plugins {
		if !fileName.MatchString(p.Network.Type) {
			return nil, fmt.Errorf("parse configuration list %s: plugins[%d].type %q is no plugin's file name", list.Name, i, p.Network.Type)
		}
	}
	return list, nil
}

// listOf makes a list of a single plugin's configuration, so that there is one
// form behind this line and in the journal.
func listOf(data []byte) ([]byte, error) {
	var head struct {
		Name       json.RawMessage `json:"name"`
		CNIVersion json.RawMessage `json:"cniVersion"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return nil, fmt.Errorf("parse configuration: %w", err)
	}
	list := map[string]any{"plugins": []json.RawMessage{data}}
	if head.Name != nil {
		list["name"] = head.Name
	}
	if head.CNIVersion != nil {
		list["cniVersion"] = head.CNIVersion
	}
	return json.Marshal(list)
}
