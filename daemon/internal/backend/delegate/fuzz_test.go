// SPDX-License-Identifier: Apache-2.0

package delegate

import (
	"encoding/json"
	"strings"
	"testing"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/types/create"

	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
)

// For any configuration, only plugin names without a path are run, and a configuration that was
// accepted is also accepted from the journal.
func FuzzConfig(f *testing.F) {
	f.Add([]byte(`{"cniVersion":"1.0.0","name":"a","plugins":[{"type":"bridge","ipam":{}}]}`))
	f.Add([]byte(`{"cniVersions":["0.4.0","1.0.0"],"name":"a","type":"ptp","disableCheck":"true"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, form := range [][]byte{data, listed(data)} {
			list, err := parseList(form)
			if err != nil {
				continue
			}
			for _, p := range list.Plugins {
				if strings.Contains(p.Network.Type, "/") || p.Network.Type == ".." {
					t.Errorf("accepted plugin %q", p.Network.Type)
				}
			}
			r := invocation{exec: &executor{root: "/"}, list: list}
			if _, err := r.prevResult(&types100.Result{CNIVersion: resultVersion}); err != nil {
				t.Logf("no prevResult: %v", err)
			}
		}
	})
}

func listed(data []byte) []byte {
	list, err := wrapInList("flat", data)
	if err != nil {
		return nil
	}
	return list
}

// For any output of a plugin, the daemon does not panic, and the journalled result can be decoded.
func FuzzResult(f *testing.F) {
	f.Add([]byte(`{"cniVersion":"0.2.0","ip4":{"ip":"10.0.0.1/8","routes":[{"dst":"0.0.0.0/0"}]},"dns":{}}`))
	f.Add([]byte(`{"cniVersion":"0.3.1","interfaces":[{"name":"e"}],"ips":[{"version":"4","interface":0,"address":"10.0.0.1/8"}],"routes":[{"dst":"10.0.0.0/8","gw":"10.0.0.2"}]}`))
	f.Add([]byte(`{"cniVersion":"1.1.0","interfaces":[{"name":"eth0","sandbox":"s","mtu":9}],"ips":[{"interface":0,"address":"fd00::1/64"}],"routes":[{"dst":"::/0","table":5}]}`))
	f.Add([]byte(`{"cniVersion":"1.0.0","ips":[null]}`))
	f.Add([]byte(`{"cniVersion":"1.0.0","ips":[{"address":"10.0.0.0/0"}],"routes":[{}]}`))
	f.Fuzz(func(t *testing.T, out []byte) {
		if checkNoNullItems(out) != nil {
			return
		}
		result, err := create.CreateFromBytes(out)
		if err != nil {
			return
		}
		converted, err := result.GetAsVersion(resultVersion)
		if err != nil {
			return
		}
		final, ok := converted.(*types100.Result)
		if !ok {
			t.Fatalf("converted to %T", converted)
		}
		ifc := &attach.Interface{Name: "eth0"}
		if setResult(ifc, final) != nil {
			return
		}
		if err := json.Unmarshal(ifc.Result, &types100.Result{}); err != nil {
			t.Errorf("journalled %s: %v", ifc.Result, err)
		}
	})
}
