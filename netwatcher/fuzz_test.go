// SPDX-License-Identifier: Apache-2.0

package netwatcher

import (
	"encoding/json"
	"testing"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
)

// For any status of another node, which may be compromised, VTEPs are global addresses and none of
// this node's, and Desired does not panic.
func FuzzPeerVTEPs(f *testing.F) {
	for _, seed := range []string{
		`[{"name": "ens4", "addresses": ["192.0.2.1/24", "fd00::1/64"]}]`, `[{"name": "ens4", "addresses": ["::ffff:192.0.2.1/120"]}]`,
		`[{"name": "ens4", "addresses": ["0.0.0.0/0", "127.0.0.1/8", "fe80::1%x/64", "ff02::1/64"]}]`, `[{"name": "", "addresses": [""]}]`, `[{}]`, `null`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var other, self v1.NodeNetwork
		if json.Unmarshal([]byte(text), &other.Status.NICs) != nil {
			return
		}
		other.Name, self.Name, self.Status.NICs = "other", "self", other.Status.NICs
		if own := PeerVTEPs([]v1.NodeNetwork{self}, "self"); len(own) > 0 {
			t.Errorf("this node's own: %v", own)
		}
		peers := PeerVTEPs([]v1.NodeNetwork{other, self}, "self")
		for device, addresses := range peers {
			for _, a := range addresses {
				if !a.IsGlobalUnicast() || a.Zone() != "" || a.Is4In6() {
					t.Errorf("%s: VTEP %s of %s", text, a, device)
				}
			}
		}
		if !SameVTEPs(other.Status.NICs, self.Status.NICs) {
			t.Errorf("%s differs from itself", text)
		}
		Desired(newFakeNode(newNet(1, "n", vxlan(5))).nets, host(), peers)
	})
}
