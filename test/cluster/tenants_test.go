// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package cluster

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
)

// secondNIC is the nodes' other card for networks, on a switch of its own.
const secondNIC = "ens5"

// tenantConfigManifest is what the netadmin gives to the tenants of the test: VLANs of one switch and
// VXLANs between the nodes' addresses on the other.
const tenantConfigManifest = `
apiVersion: danm.io/v1
kind: TenantConfig
metadata: {name: two-switches}
hostDevices:
  - {name: ens4, vniType: vlan, vniRange: "900-903"}
  - {name: ens5, vniType: vxlan, vniRange: "9000-9003"}
namespaceSelector: {matchLabels: {tenants-of: two-switches}}
`

// tenantNetworkManifest is a tenant's network: nothing of it is physical. Both tenants have the same
// subnets, as tenants do who have never heard of each other.
const tenantNetworkManifest = `
apiVersion: danm.io/v1
kind: TenantNetwork
metadata: {name: net-%[2]d}
spec:
  NetworkID: %[1]s%[2]d
  Options: {cidr: 10.190.%[2]d.0/24}
`

// tenantFixture is a tenant with his two networks and two Pods.
type tenantFixture struct {
	*kubeUser
	// near and far are the Pods on the first and the second node; their addresses end
	// in last and last+1.
	near, far *corev1.Pod
	lastByte  int
	networks  [2]*v1.TenantNetwork
}

// Two tenants, who share two devices and know nothing of each other, have networks
// for the asking, and neither sees a packet of the other.
func TestTenants(t *testing.T) {
	c, ns := shared, shared.namespace(t)
	netadmin := c.netadmin(t, ns)
	netadmin.apply(t, tenantConfigManifest)
	config := &v1.TenantConfig{ObjectMeta: metav1.ObjectMeta{Name: "two-switches"}}
	t.Cleanup(func() { c.removeConfig(t, config) })
	red, blue := c.newTenantFixture(t, "red", 11), c.newTenantFixture(t, "blue", 21)
	checkSharedDevices(t, red, blue)
	red.checkRefused(t, "a tenant chooses no VLAN", strings.Replace(fmt.Sprintf(tenantNetworkManifest, "spy", 3), "Options: {", "Options: {vlan: 900, ", 1),
		[]string{"spec.Options.vlan", "900", "TenantConfig"}, "apply", "--filename", "-")
	red.checkRefused(t, "a tenant sees nobody's reservations", "", []string{"forbidden"}, "get", "tenantconfigs")
	for _, who := range []*tenantFixture{red, blue} {
		who.startPods(t)
	}
	for _, who := range []*tenantFixture{red, blue} {
		for _, ifc := range []string{"eth0", "eth1"} {
			c.ping(t, who.far, who.near, ifc) // the other way while packets are captured
		}
	}
	checkIsolation(t, red, blue)
	red.checkDeletion(t, config)
}

// newTenantFixture makes a namespace, its tenant, and his networks.
func (c *cluster) newTenantFixture(t *testing.T, name string, last int) *tenantFixture {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "t-" + name, Labels: map[string]string{"tenants-of": "two-switches"}}}
	c.createNamespace(t, ns)
	who := &tenantFixture{kubeUser: c.tenant(t, ns.Name), lastByte: last}
	for i := range who.networks {
		who.apply(t, fmt.Sprintf(tenantNetworkManifest, name, i+1))
		who.networks[i] = who.network(t, "net-"+strconv.Itoa(i+1))
	}
	return who
}

// checkSharedDevices checks that both tenants are on both devices, each with IDs of his own.
func checkSharedDevices(t *testing.T, red, blue *tenantFixture) {
	t.Helper()
	taken := map[string]string{}
	devices := map[string]map[string]bool{}
	for _, who := range []*tenantFixture{red, blue} {
		for _, n := range who.networks {
			o := n.Spec.Options
			place := fmt.Sprintf("%s vlan %d vxlan %d", o.Device, o.VLAN, o.VXLAN)
			if other, twice := taken[place]; twice {
				t.Errorf("%s/%s and %s have %s", n.Namespace, n.Name, other, place)
			}
			taken[place] = n.Namespace + "/" + n.Name
			if devices[o.Device] == nil {
				devices[o.Device] = map[string]bool{}
			}
			devices[o.Device][n.Namespace] = true
			onVLAN, onVXLAN := o.Device == trunk && o.VLAN >= 900 && o.VXLAN == 0, o.Device == secondNIC && o.VXLAN >= 9000 && o.VLAN == 0
			if !onVLAN && !onVXLAN {
				t.Errorf("%s/%s was assigned %s, which nobody offers", n.Namespace, n.Name, place)
			}
		}
	}
	if len(devices[trunk]) != 2 || len(devices[secondNIC]) != 2 {
		t.Fatalf("tenants by device: %v, want both on both", devices)
	}
}

// startPods makes the tenant's Pods with his own token, on two nodes.
func (who *tenantFixture) startPods(t *testing.T) {
	t.Helper()
	start := func(name, node string, last int) *corev1.Pod {
		p := pod(who.namespace, name, "", "")
		who.apply(t, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata:
  name: %s
  annotations:
    danm.io/interfaces: '[{"tenantNetwork": "net-1", "ip": "10.190.1.%d"}, {"tenantNetwork": "net-2", "ip": "10.190.2.%d"}]'
spec:
  nodeName: %s
  terminationGracePeriodSeconds: 0
  automountServiceAccountToken: false
  containers: [{name: main, image: %q, imagePullPolicy: Never, command: [sleep, infinity]}]
`, name, last, last, node, busybox))
		t.Cleanup(func() { who.c.removePod(t, p) })
		return p
	}
	who.near, who.far = start("near", who.c.nodes[0], who.lastByte), start("far", who.c.nodes[1], who.lastByte+1)
	for _, p := range []*corev1.Pod{who.near, who.far} {
		who.c.awaitRunning(t.Context(), t, p)
	}
}

// checkIsolation captures in the Pods on the far node and on that node's cards, while each
// tenant sends to his own Pod, and asks the whole segment for the other's.
func checkIsolation(t *testing.T, red, blue *tenantFixture) {
	t.Helper()
	c, node := red.c, red.c.nodes[1]
	onVLAN, onVXLAN := c.capture(t, node, "", trunk), c.capture(t, node, "", secondNIC)
	inside := map[*tenantFixture][2]*capture{}
	for _, who := range []*tenantFixture{red, blue} {
		for i, ifc := range []string{"eth0", "eth1"} {
			pair := inside[who]
			pair[i] = c.capture(t, node, who.netns(t, who.far), ifc)
			inside[who] = pair
		}
	}
	others := map[*tenantFixture]*tenantFixture{red: blue, blue: red}
	for _, who := range []*tenantFixture{red, blue} {
		for i := range who.networks {
			who.pingTarget(t, i, who.lastByte+1, true)
			who.pingTarget(t, i, others[who].lastByte+1, false)
		}
	}
	for _, who := range []*tenantFixture{red, blue} {
		for i, n := range who.networks {
			mine, theirs := who.arpLine(i, others[who].lastByte+1), others[who].arpLine(i, who.lastByte+1)
			asks := func() { who.pingTarget(t, i, others[who].lastByte+1, false) }
			inside[who][i].awaitPacket(t, "a Pod sees who asks on its segment", asks, mine)
			inside[who][i].awaitPacket(t, "and who talks to it", func() { who.pingTarget(t, i, who.lastByte+1, true) }, who.icmpLine(i))
			if n.Spec.Options.VLAN != 0 {
				onVLAN.awaitPacket(t, "the wire has it, with its VLAN", asks, fmt.Sprintf("vlan %d,", n.Spec.Options.VLAN), mine)
			} else {
				onVXLAN.awaitPacket(t, "the wire has it, with its VXLAN", asks, fmt.Sprintf("vni %d", n.Spec.Options.VXLAN), mine)
			}
			inside[who][i].checkNoPacket(t, "a tenant sees the other's traffic", theirs, others[who].icmpLine(i))
		}
	}
}

// pingTarget pings from the near Pod; who is not there is asked for on the whole segment.
func (who *tenantFixture) pingTarget(t *testing.T, network, last int, there bool) {
	t.Helper()
	ifc, target := fmt.Sprintf("eth%d", network), fmt.Sprintf("10.190.%d.%d", network+1, last)
	seconds := "2" // it asks once a second
	if there {
		seconds = "10"
	}
	who.c.await(t.Context(), t, who.near.Name+" asks for "+target, func(ctx context.Context) string {
		_, err := who.kubectl(ctx, "", "exec", who.near.Name, "--", "ping", "-c", "1", "-w", seconds, "-I", ifc, target)
		switch {
		case err == nil && !there:
			t.Errorf("%s answers %s of %s", target, who.near.Name, who.namespace)
		case err != nil && there, err != nil && !strings.Contains(err.Error(), "exit code 1"):
			return err.Error() // no answer of its own Pod, or ping did not run
		}
		return ""
	})
}

// arpLine is how tcpdump writes that the near Pod asks for an address.
func (who *tenantFixture) arpLine(network, last int) string {
	return fmt.Sprintf("who-has 10.190.%[1]d.%[2]d tell 10.190.%[1]d.%[3]d", network+1, last, who.lastByte)
}

// icmpLine is how it writes that the near Pod pings the far one.
func (who *tenantFixture) icmpLine(network int) string {
	return fmt.Sprintf("10.190.%[1]d.%[2]d > 10.190.%[1]d.%[3]d: ICMP echo request", network+1, who.lastByte, who.lastByte+1)
}

// netns is the path of a Pod's network namespace on its node.
func (who *tenantFixture) netns(t *testing.T, p *corev1.Pod) string {
	t.Helper()
	eps, err := who.c.endpoints(t.Context(), p)
	if err != nil || eps["eth0"].Spec.Netns == "" {
		t.Fatalf("DanmEps of %s/%s: %v, %v", p.Namespace, p.Name, eps, err)
	}
	return eps["eth0"].Spec.Netns
}

// checkDeletion checks that a network goes after its Pods, not before, and that its ID is free
// then.
func (who *tenantFixture) checkDeletion(t *testing.T, config *v1.TenantConfig) {
	t.Helper()
	who.checkRefused(t, "Pods are attached", "", []string{"must not be in use", who.namespace + "/", "delete the Pods first"},
		"delete", "tenantnetwork", "net-1", "--wait=false")
	if n := who.network(t, "net-1"); n.DeletionTimestamp != nil {
		t.Error("a refused deletion has begun")
	}
	who.c.await(t.Context(), t, "the Pods are deleted", func(ctx context.Context) string {
		if _, err := who.kubectl(ctx, "", "delete", "pod", "near", "far", "--ignore-not-found"); err != nil {
			return err.Error()
		}
		return ""
	})
	free := who.networks[0]
	who.c.await(t.Context(), t, "the networks are deleted", func(ctx context.Context) string {
		if _, err := who.kubectl(ctx, "", "delete", "tenantnetworks", "--all", "--timeout=30s"); err != nil {
			return err.Error()
		}
		return ""
	})
	who.c.await(t.Context(), t, "what they had is free", func(ctx context.Context) string {
		if err := who.c.Get(ctx, client.ObjectKeyFromObject(config), config); err != nil {
			return err.Error()
		}
		for page, text := range config.Status.Reservations {
			if strings.Contains(text, who.namespace+"/") {
				return page + " has " + text
			}
		}
		return ""
	})
	who.apply(t, fmt.Sprintf(tenantNetworkManifest, "again", 1))
	again := who.network(t, "net-1").Spec.Options
	if was := free.Spec.Options; again.Device != was.Device || again.VLAN != was.VLAN || again.VXLAN != was.VXLAN {
		t.Errorf("the lowest free ID is %s/%d/%d again, got %s/%d/%d", was.Device, was.VLAN, was.VXLAN, again.Device, again.VLAN, again.VXLAN)
	}
}

// removePod deletes a Pod that a tenant made and waits until it is gone.
func (c *cluster) removePod(t *testing.T, p *corev1.Pod) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), waitTimeout)
	defer cancel()
	if err := client.IgnoreNotFound(c.Delete(ctx, p, client.GracePeriodSeconds(0))); err != nil {
		t.Errorf("delete Pod: %v", err)
	}
	c.await(ctx, t, "Pod "+p.Name+" is gone", func(ctx context.Context) string {
		if err := c.Get(ctx, client.ObjectKeyFromObject(p), p); client.IgnoreNotFound(err) == nil && err != nil {
			return ""
		}
		return "it is there"
	})
}

// removeConfig deletes the TenantConfig once no network draws from it.
func (c *cluster) removeConfig(t *testing.T, config *v1.TenantConfig) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), waitTimeout)
	defer cancel()
	c.retryAdmission(ctx, t, "delete", config, func(ctx context.Context) error { return client.IgnoreNotFound(c.Delete(ctx, config)) })
}
