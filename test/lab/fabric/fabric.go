// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"

	"github.com/patchbay-cni/patchbay/test/lab/netns"
)

// ErrNotPlugged says that no node is plugged in there.
var ErrNotPlugged = errors.New("not plugged in")

// Names of the bridges.
const (
	bridgeManagement = "mgmt"
	bridgeTrunk      = "trunk"
	bridgeSecond     = "second"
	bridgeAgent      = "agent"
	// bridgeCut has the ports of nodes that are cut off, isolated from each other.
	bridgeCut = "cut"
)

// Fabric is the cabling in one namespace.
type Fabric struct {
	// Netns is the namespace's name.
	Netns string
}

// Create makes namespace and bridges. What is there already stays.
func (f Fabric) Create() error {
	if err := netns.Add(f.Netns); err != nil {
		return err
	}
	if err := f.sysctl(
		"net.ipv4.ip_forward=1",
		// Nodes reach each other's Pods through here and shall keep doing so.
		"net.ipv4.conf.all.send_redirects=0",
		"net.ipv4.conf.default.send_redirects=0",
		// Bridges and taps pass IPv6 on and take no part in it.
		"net.ipv6.conf.default.disable_ipv6=1",
	); err != nil {
		return err
	}
	links, err := netns.Links(f.Netns)
	if err != nil {
		return err
	}
	for bridge, address := range map[string]string{
		bridgeManagement: Gateway().String() + "/24",
		bridgeTrunk:      "",
		bridgeSecond:     "",
		bridgeCut:        "",
		bridgeAgent:      "169.254.89.1/24",
	} {
		if slices.Contains(links, bridge) {
			continue
		}
		if err := netns.Batch(f.Netns, bridgeLines(bridge, address)...); err != nil {
			return err
		}
	}
	return f.addServiceNAT()
}

// bridgeLines make a bridge that forwards at once and floods multicast.
func bridgeLines(name, address string) []string {
	lines := []string{"link add " + name + " type bridge stp_state 0 forward_delay 0 mcast_snooping 0"}
	if address != "" {
		lines = append(lines, "address add "+address+" dev "+name)
	}
	return append(lines, "link set "+name+" up")
}

// addServiceNAT does for the one Service that every program needs what kube-proxy would.
func (f Fabric) addServiceNAT() error {
	rules := fmt.Sprintf(`table ip lab
delete table ip lab
table ip lab {
	chain prerouting {
		type nat hook prerouting priority dstnat
		ip daddr %s tcp dport 443 dnat to %s:%d
	}
}
`, ServiceAddress(), Gateway(), APIPort)
	_, err := f.run(rules, "nft", "-f", "-")
	return err
}

// Delete removes the namespace's name.
func (f Fabric) Delete() error { return netns.Delete(f.Netns) }

// Plug gives a node its taps. Those that are there stay as they are, cut or not.
func (f Fabric) Plug(p Port) error {
	links, err := netns.Links(f.Netns)
	if err != nil {
		return err
	}
	var lines []string
	for _, c := range p.Cards() {
		if !slices.Contains(links, c.Tap) {
			lines = append(lines,
				"tuntap add dev "+c.Tap+" mode tap",
				"link set "+c.Tap+" master "+c.bridge+" up")
		}
	}
	lines = append(lines, "route replace "+p.Pods().String()+" via "+p.Management().Prefix.Addr().String())
	return netns.Batch(f.Netns, lines...)
}

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

func (f Fabric) sysctl(settings ...string) error {
	_, err := f.run("", append([]string{"sysctl", "-q", "-w"}, settings...)...)
	return err
}

func (f Fabric) run(stdin string, args ...string) (string, error) {
	cmd := exec.Command("nsenter", append([]string{"--net=" + netns.Path(f.Netns), "--"}, args...)...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("run %s in %s: %w: %s", strings.Join(args, " "), f.Netns, err, out)
	}
	return string(out), nil
}
