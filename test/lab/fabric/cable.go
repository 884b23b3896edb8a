// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"errors"
	"fmt"
	"strings"

	"github.com/patchbay-cni/patchbay/test/lab/netns"
)

// ErrNotPlugged says that no node is plugged in there.
var ErrNotPlugged = errors.New("not plugged in")

// Cut stops all traffic of a node's cards, as if all cables were out, except that the
// cards keep their carrier. It lasts until Heal, also when the node loses its power.
// Commands still reach the node.
//
// The taps move to a bridge where no port reaches another. They are not set down: to
// a tap that is down the guest's driver cannot write, and after that error it is dead
// until the card is set down and up in the guest.
func (f Fabric) Cut(p Port) error {
	var lines []string
	for _, c := range p.cables() {
		lines = append(lines,
			"link set "+c.Tap+" master "+bridgeCut,
			"link set "+c.Tap+" type bridge_slave isolated on")
	}
	return netns.Batch(f.Netns, lines...)
}

// Heal ends a cut.
func (f Fabric) Heal(p Port) error {
	var lines []string
	for _, c := range p.cables() {
		// A port begins without the isolation that it had elsewhere.
		lines = append(lines, "link set "+c.Tap+" master "+c.bridge)
	}
	return netns.Batch(f.Netns, lines...)
}

// IsCut tells whether a node is cut off.
func (f Fabric) IsCut(p Port) (bool, error) {
	tap := p.Management().Tap
	out, err := f.run("", "ip", "-oneline", "link", "show", "dev", tap)
	if err != nil {
		return false, fmt.Errorf("look at %s: %w: %w", tap, ErrNotPlugged, err)
	}
	return strings.Contains(out, " master "+bridgeCut+" "), nil
}

// cables are the cards that can be cut.
func (p Port) cables() []Card { return []Card{p.Management(), p.Trunk(), p.Second()} }
