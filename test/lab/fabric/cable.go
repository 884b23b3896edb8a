// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"errors"
	"fmt"
	"strings"
)

// ErrNotPlugged says that no node is plugged in there.
var ErrNotPlugged = errors.New("not plugged in")

// States of a bridge's port, see bridge(8).
const (
	portDisabled   = "disabled"
	portForwarding = "forwarding"
)

// Cut stops all traffic of a node's cards, as if both cables were out, except that the
// node's cards keep their carrier. Commands still reach the node.
func (f Fabric) Cut(p Port) error { return f.setCables(p, portDisabled) }

// Heal ends a cut.
func (f Fabric) Heal(p Port) error { return f.setCables(p, portForwarding) }

// IsCut tells whether a node is cut off.
func (f Fabric) IsCut(p Port) (bool, error) {
	tap := p.Management().Tap
	out, err := f.run("", "bridge", "-oneline", "link", "show", "dev", tap)
	if err != nil {
		return false, fmt.Errorf("look at %s: %w: %w", tap, ErrNotPlugged, err)
	}
	return strings.Contains(out, " state "+portDisabled), nil
}

// setCables changes the bridge's ports and leaves the taps alone: to a tap that is
// down the guest's driver cannot write, and after that error it is dead until the card
// is set down and up in the guest.
func (f Fabric) setCables(p Port, state string) error {
	for _, c := range []Card{p.Management(), p.Trunk()} {
		if _, err := f.run("", "bridge", "link", "set", "dev", c.Tap, "state", state); err != nil {
			return fmt.Errorf("set %s %s: %w", c.Tap, state, err)
		}
	}
	return nil
}
