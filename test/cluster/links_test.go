// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package cluster

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
)

// listenPort is where every node listens, on all of its addresses, while a Pod tries
// to reach it.
const listenPort = "7999"

// From a Pod on a tenant's network nobody reaches a node: not on the link's own
// IPv4 or link-local addresses, which there are none of, and not by asking everybody
// on the wire. The nodes' own cards are captured meanwhile: there is traffic of the
// Pod, and no answer of a node.
func TestPodsReachNoListenerOfNodes(t *testing.T) {
	c, ns := shared, shared.namespace(t)
	n := clusterNetwork("listen", "listen", v1.TypeMACVLAN, v1.NetworkOptions{
		Device: trunk, VLAN: 560, CIDR: "10.56.0.0/24", Net6: "fd00:56::/64",
	})
	c.create(t, n)
	p := pod(ns, "prober", c.nodes[0], `[{"clusterNetwork":"listen","ip":"dynamic","ip6":"dynamic"}]`)
	c.create(t, p)
	c.awaitRunning(t.Context(), t, p)
	c.awaitReadyCondition(t, n, metav1.ConditionTrue, "ready on all nodes")

	var targets []string
	var captures []*capture
	for _, node := range c.nodes {
		out := c.runOnNode(t, node, "ip -o address show dev listen.560; sysctl -n net.ipv6.conf.listen/560.disable_ipv6; cat /sys/class/net/listen.560/address")
		words := strings.Fields(out)
		if strings.Contains(out, "inet") || len(words) != 2 || words[0] != "1" {
			t.Fatalf("%s has an address on a tenant's link, or IPv6:\n%s", node, out)
		}
		targets = append(targets, linkLocal(words[1])+"%eth0", c.vtepAddress(t, node))
		c.background(t, node, "busybox nc -ll -p "+listenPort+" -e /bin/true")
		c.await(t.Context(), t, "the listener on "+node+" answers the node itself", func(ctx context.Context) string {
			out, err := c.lab.Exec(ctx, node, "sh", "-c", "busybox nc -w 2 127.0.0.1 "+listenPort+" </dev/null && echo answers")
			if err != nil || !strings.Contains(out, "answers") {
				return fmt.Sprintf("%s (error: %v)", out, err)
			}
			return ""
		})
		captures = append(captures, c.capture(t, node, "", "listen.560"))
	}
	// Everybody on the wire is asked besides, and nobody may answer.
	out := c.runInPod(t, p, fmt.Sprintf(`for a in %s; do nc -w 2 $a %s </dev/null && echo "$a answers" || echo "$a does not"; done 2>&1
		ping -c 2 -W 2 -I eth0 ff02::1 2>&1; ping -c 2 -W 2 10.56.0.255 2>&1; echo that was all`, strings.Join(targets, " "), listenPort), "that was all")
	if strings.Contains(out, " answers") || strings.Count(out, "does not") != len(targets) {
		t.Errorf("a listener of a node was reached:\n%s", out)
	}
	asked := false
	for _, p := range captures {
		packets := p.allPackets(t)
		for _, packet := range packets {
			asked = asked || strings.Contains(packet, "ICMP6, echo request")
			for _, answer := range []string{"echo reply", "Flags [S.]", "Flags [R", "neighbor advertisement", "ARP, Reply"} {
				if strings.Contains(packet, answer) && !strings.Contains(packet, "10.56.0.") && !strings.Contains(packet, "fd00:56::") {
					t.Errorf("captured on %s: %s", p.node, packet)
				}
			}
		}
		t.Logf("captured on %s:\n%s", p.node, strings.Join(packets, ""))
	}
	if !asked {
		t.Errorf("the capture has nothing of what the Pod sent, so that it proves nothing; the Pod's output:\n%s", out)
	}
}

// linkLocal is the address that the kernel would make from a MAC (RFC 4291, A).
func linkLocal(mac string) string {
	var b [6]int
	_, _ = fmt.Sscanf(mac, "%x:%x:%x:%x:%x:%x", &b[0], &b[1], &b[2], &b[3], &b[4], &b[5])
	return fmt.Sprintf("fe80::%x:%xff:fe%02x:%x", (b[0]^2)<<8|b[1], b[2], b[3], b[4]<<8|b[5])
}

// awaitReadyCondition waits for a network's condition Ready.
func (c *cluster) awaitReadyCondition(t *testing.T, n *v1.ClusterNetwork, status metav1.ConditionStatus, message string) {
	t.Helper()
	c.await(t.Context(), t, fmt.Sprintf("%s is %s: %s", n.Name, status, message), func(ctx context.Context) string {
		if err := c.Get(ctx, client.ObjectKeyFromObject(n), n); err != nil {
			return err.Error()
		}
		now := meta.FindStatusCondition(n.Status.Conditions, v1.ConditionReady)
		if now == nil || now.Status != status || !strings.Contains(now.Message, message) {
			return fmt.Sprintf("it is %+v", now)
		}
		return ""
	})
}

// What a netadmin sees of a network whose NIC is not on every node: the network names
// the node and the cause, and is ready again once the NIC is there.
func TestNetworkSaysWhereItIsNotReady(t *testing.T) {
	c := shared
	n := clusterNetwork("partly", "partly", v1.TypeMACVLAN, v1.NetworkOptions{Device: "ens9", VLAN: 570})
	plug := func(node string) {
		c.runOnNode(t, node, "ip link add ens9 type dummy")
		t.Cleanup(func() { _, _ = c.lab.Exec(context.WithoutCancel(t.Context()), node, "ip", "link", "delete", "ens9") })
	}
	for _, node := range c.nodes[1:] {
		plug(node)
	}
	c.create(t, n)
	c.awaitReadyCondition(t, n, metav1.ConditionFalse, fmt.Sprintf("ready on %d of %d nodes; %s: ens9: NIC not found on this node", len(c.nodes)-1, len(c.nodes), c.nodes[0]))
	plug(c.nodes[0])
	c.awaitReadyCondition(t, n, metav1.ConditionTrue, "ready on all nodes")
}
