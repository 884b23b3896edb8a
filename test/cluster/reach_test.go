// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package cluster

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
)

// Two Pods on two nodes, each on every kind of network, reach each other on each.
func TestPodsReachEachOther(t *testing.T) {
	t.Parallel()
	c, ns := shared, shared.namespace(t)
	onVLAN := vlan("reach-vlan", "rvl", 510, "10.51.0.0/24")
	onVLAN.Spec.Options.Net6 = "fd00:51::/64"
	c.create(t, onVLAN)
	c.create(t, vxlan("reach-vxlan", "rvx", 7100, "10.71.0.0/16"))
	const asks = `[{"clusterNetwork":"default"},` +
		`{"clusterNetwork":"reach-vlan","ip":"dynamic","ip6":"dynamic"},` +
		`{"clusterNetwork":"reach-vxlan","ip":"dynamic"}]`
	pods := []*corev1.Pod{pod(ns, "a", c.nodes[0], asks), pod(ns, "b", c.nodes[1], asks)}
	for _, p := range pods {
		c.create(t, p)
	}
	for _, p := range pods {
		c.awaitRunning(t.Context(), t, p)
	}
	for _, ifc := range []string{"eth0", "eth1", "eth2"} {
		c.ping(t, pods[0], pods[1], ifc)
		c.ping(t, pods[1], pods[0], ifc)
	}
}

// What users were told to write works: the older annotation, a static address, a
// policy route, no address at all, the default network.
func TestAnnotations(t *testing.T) {
	t.Parallel()
	c, ns := shared, shared.namespace(t)
	n := vxlan("annotations", "annot", 7200, "10.72.0.0/24")
	n.Spec.Options.Prefix = "net"
	n.Spec.Options.RTTables = 120
	n.Spec.Options.Routes = map[string]v1.Gateway{"10.172.0.0/24": "10.72.0.1"}
	c.create(t, n)
	cases := map[string]struct {
		reason, key, value string
		shell, want        string
	}{
		"none": {
			reason: "a Pod without an annotation gets the network named default",
			shell:  "ls /sys/class/net", want: "eth0",
		},
		"static": {
			reason: "a static address is the one that was asked for",
			key:    v1.InterfacesAnnotation,
			value:  `[{"clusterNetwork":"default"},{"clusterNetwork":"annotations","ip":"10.72.0.77"}]`,
			shell:  "ip -o address show net1", want: "10.72.0.77/24",
		},
		"older": {
			reason: "DANM 4.3's name of the annotation is as good",
			key:    v1.LegacyInterfacesAnnotation,
			value:  `[{"clusterNetwork":"default"},{"clusterNetwork":"annotations","ip":"dynamic"}]`,
			shell:  "ip -o address show net1", want: "10.72.0.",
		},
		"routes": {
			reason: "the network's routes are installed in each Pod",
			key:    v1.InterfacesAnnotation,
			value:  `[{"clusterNetwork":"default"},{"clusterNetwork":"annotations","ip":"dynamic"}]`,
			shell:  "ip route", want: "10.172.0.0/24 via 10.72.0.1 dev net1",
		},
		"proutes": {
			reason: "policy routes are for traffic from the Pod's own address",
			key:    v1.InterfacesAnnotation,
			value: `[{"clusterNetwork":"default"},{"clusterNetwork":"annotations","ip":"dynamic",` +
				`"proutes":{"10.173.0.0/24":"10.72.0.1"}}]`,
			shell: "ip rule; ip route show table 120", want: "10.173.0.0/24 via 10.72.0.1",
		},
		"bare": {
			reason: "an interface may do without an address",
			key:    v1.InterfacesAnnotation,
			value:  `[{"clusterNetwork":"default"},{"clusterNetwork":"annotations"}]`,
			shell:  "ip -o link show net1", want: "UP",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := pod(ns, name, c.nodes[0], "")
			if tc.key != "" {
				p.Annotations = map[string]string{tc.key: tc.value}
			}
			c.create(t, p)
			c.awaitRunning(t.Context(), t, p)
			// Under load an exec may come back without what it printed.
			c.await(t.Context(), t, tc.reason, func(ctx context.Context) string {
				out, err := c.lab.Kubectl(ctx, "exec", "-n", ns, name, "--", "sh", "-c", tc.shell)
				if err == nil && strings.Contains(out, tc.want) {
					return ""
				}
				return fmt.Sprintf("`%s` does not say %q (error: %v):\n%s", tc.shell, tc.want, err, out)
			})
		})
	}
}
