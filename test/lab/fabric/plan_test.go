// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"strings"
	"testing"
)

// No two nodes share an address, a subnet, a MAC address or a tap, and no name is
// longer than the kernel takes.
func TestPortsAreDistinct(t *testing.T) {
	t.Parallel()
	const longestName = 15
	seen := map[string]Port{}
	for p := Port(1); p <= MaxIndex; p++ {
		keys := []string{p.Pods().String()}
		for _, c := range p.Cards() {
			keys = append(keys, c.Prefix.String(), c.MAC, c.Tap)
			if len(c.Tap) > longestName {
				t.Errorf("tap %s is too long", c.Tap)
			}
			if !strings.HasPrefix(c.MAC, "02:") {
				t.Errorf("MAC address %s is not a locally administered one", c.MAC)
			}
		}
		for _, key := range keys {
			if other, taken := seen[key]; taken {
				t.Errorf("%s is node %d's and node %d's", key, other, p)
			}
			seen[key] = p
		}
		if p.Management().Prefix.Addr() == Gateway() {
			t.Errorf("node %d has the gateway's address", p)
		}
	}
}
