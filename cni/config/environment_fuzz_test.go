// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"path"
	"strings"
	"testing"

	"github.com/patchbay-cni/patchbay/cni/config"
	"github.com/patchbay-cni/patchbay/cni/wire"
)

// Values that ValidateRequest accepts do not lead out of a directory.
func FuzzValidateRequest(f *testing.F) {
	f.Add("ADD", "c", "/run/netns/x", "eth0")
	f.Add("DEL", "c..d", "", "..")
	f.Fuzz(func(t *testing.T, command, id, netns, ifName string) {
		req := &wire.Request{Command: command, ContainerID: id, Netns: netns, IfName: ifName}
		if err := config.ValidateRequest(req); code(t, err) != 0 || command == "STATUS" || command == "GC" {
			return
		}
		if path.Base(id) != id || path.Base(ifName) != ifName || strings.HasPrefix(ifName, "..") && len(ifName) == 2 {
			t.Errorf("accepted %+v", req)
		}
		if command == "ADD" && (path.Clean(netns) != netns || !path.IsAbs(netns)) {
			t.Errorf("accepted %+v", req)
		}
	})
}
