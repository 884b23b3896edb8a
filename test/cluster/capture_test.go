// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package cluster

import (
	"context"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// capture is a tcpdump that runs on a node.
type capture struct {
	c          *cluster
	node, file string
}

// capture starts a tcpdump on an interface of a network namespace, or of the node
// itself when netns is empty. It returns once packets are seen.
func (c *cluster) capture(t *testing.T, node, netns, ifc string) *capture {
	t.Helper()
	file := fmt.Sprintf("/run/capture-%d", time.Now().UnixNano())
	dump := "tcpdump -n -i " + ifc + " -U --immediate-mode -w " + file
	if netns != "" {
		dump = "ip netns exec " + path.Base(netns) + " " + dump
	}
	t.Cleanup(func() { _, _ = c.lab.Exec(context.WithoutCancel(t.Context()), node, "rm", "-f", file, file+".err") })
	c.background(t, node, dump+" 2>"+file+".err")
	p := &capture{c: c, node: node, file: file}
	c.await(t.Context(), t, "packets of "+ifc+" are captured", func(ctx context.Context) string {
		out, err := c.lab.Exec(ctx, node, "cat", file+".err")
		if err == nil && strings.Contains(out, "listening on") {
			return ""
		}
		return fmt.Sprintf("%s (error: %v)", out, err)
	})
	return p
}

// packets are what was captured so far. The inner frame of a VXLAN is on a line of its
// own; a packet begins with the time.
func (p *capture) packets(ctx context.Context) ([]string, error) {
	text, err := p.c.lab.Exec(ctx, p.node, "sh", "-c", "tcpdump -n -e -r "+p.file+" 2>/dev/null")
	var found []string
	for line := range strings.Lines(text) {
		if packetStart.MatchString(line) || len(found) == 0 {
			found = append(found, line)
		} else {
			found[len(found)-1] += line
		}
	}
	return found, err
}

var packetStart = regexp.MustCompile(`^\d\d:\d\d:\d\d\.`)

// allPackets are the packets captured so far, once they can be read: the last one may be half
// written.
func (p *capture) allPackets(t *testing.T) (packets []string) {
	t.Helper()
	p.c.await(t.Context(), t, "the capture can be read", func(ctx context.Context) string {
		var err error
		if packets, err = p.packets(ctx); err != nil {
			return err.Error()
		}
		return ""
	})
	return packets
}

// awaitPacket waits until a packet with all of some words was captured. Between two looks it
// causes one more: the wire may lose any.
func (p *capture) awaitPacket(t *testing.T, reason string, cause func(), words ...string) {
	t.Helper()
	first := true
	p.c.await(t.Context(), t, reason, func(ctx context.Context) string {
		if !first {
			cause()
		}
		first = false
		packets, err := p.packets(ctx)
		if err != nil {
			return err.Error()
		}
		for _, packet := range packets {
			if !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(packet, word) }) {
				return ""
			}
		}
		return fmt.Sprintf("no packet with %q among\n%s", words, strings.Join(packets, ""))
	})
}

// checkNoPacket fails the test when any of some words was captured.
func (p *capture) checkNoPacket(t *testing.T, reason string, words ...string) {
	t.Helper()
	for _, packet := range p.allPackets(t) {
		for _, word := range words {
			if strings.Contains(packet, word) {
				t.Errorf("%s: %s captured on %s", reason, strings.TrimSpace(packet), p.node)
			}
		}
	}
}
