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

// Names of the bridges.
const (
	bridgeManagement = "mgmt"
	bridgeTrunk      = "trunk"
	bridgeAgent      = "agent"
)

// ErrNoPort says that no node is plugged in there.
var ErrNoPort = errors.New("no such node in the fabric")

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
		bridgeAgent:      "169.254.89.1/24",
	} {
		if slices.Contains(links, bridge) {
			continue
		}
		if err := netns.Batch(f.Netns, bridgeLines(bridge, address)...); err != nil {
			return err
		}
	}
	return f.translate()
}

// bridgeLines make a bridge that forwards at once and floods multicast.
func bridgeLines(name, address string) []string {
	lines := []string{"link add " + name + " type bridge stp_state 0 forward_delay 0 mcast_snooping 0"}
	if address != "" {
		lines = append(lines, "address add "+address+" dev "+name)
	}
	return append(lines, "link set "+name+" up")
}

// translate does for the one Service that every program needs what kube-proxy would.
func (f Fabric) translate() error {
	rules := fmt.Sprintf(`table ip lab
delete table ip lab
table ip lab {
	chain prerouting {
		type nat hook prerouting priority dstnat
		ip daddr %s tcp dport 443 dnat to %s:%d
	}
}
`, ServiceAddress(), Gateway(), APIPort)
	return f.run(rules, "nft", "-f", "-")
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

// Cut takes both of a node's cables out. Commands still reach it.
func (f Fabric) Cut(p Port) error { return f.cable(p, "down") }

// Heal puts the cables back.
func (f Fabric) Heal(p Port) error { return f.cable(p, "up") }

// IsCut tells whether the node's management cable is out.
func (f Fabric) IsCut(p Port) (bool, error) {
	out, err := exec.Command("ip", "-netns", f.Netns, "-oneline", "link", "show", "dev", p.Management().Tap, "up").Output()
	if err != nil {
		return false, fmt.Errorf("look at cable of node %d: %w: %w", p, ErrNoPort, err)
	}
	return len(out) == 0, nil
}

func (f Fabric) cable(p Port, state string) error {
	err := netns.Batch(f.Netns,
		"link set "+p.Management().Tap+" "+state,
		"link set "+p.Trunk().Tap+" "+state)
	if err != nil || state == "down" {
		return err
	}
	// The kernel drops a route with the link below it only on the link's own host, but
	// an address resolution that failed meanwhile would be remembered.
	return netns.Batch(f.Netns, "neigh flush dev "+bridgeManagement)
}

func (f Fabric) sysctl(settings ...string) error {
	return f.run("", append([]string{"sysctl", "-q", "-w"}, settings...)...)
}

func (f Fabric) run(stdin string, args ...string) error {
	cmd := exec.Command("nsenter", append([]string{"--net=" + netns.Path(f.Netns), "--"}, args...)...)
	cmd.Stdin = strings.NewReader(stdin)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("run %s in %s: %w: %s", strings.Join(args, " "), f.Netns, err, out)
	}
	return nil
}
