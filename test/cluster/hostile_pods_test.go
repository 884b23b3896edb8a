// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package cluster

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/test/lab/remote"
)

const (
	// framesOnNode is where a node has the program that attackers run (cmd/frames).
	framesOnNode = "/run/frames"
	framesInPod  = "/frames/frames"
	victimVNI    = 7700
	victimVLAN   = 577
)

// attack is what a hostile Pod sends to the segment of a victim. Each names an address of
// its own as the sender, by which a capture in the victim tells which one arrived.
type attack struct {
	reason string
	from   *corev1.Pod
	args   []string
	marker netip.Addr
}

// An ordinary Pod, without any capability, sends UDP to the VXLAN port of each node: no
// frame comes out in the Pods of that VXLAN, and no node learns an address from it.
func TestHostilePodEntersNoVXLAN(t *testing.T) {
	t.Parallel()
	c, ns := shared, shared.namespace(t)
	c.installFrames(t)
	c.create(t, vxlan("hostile-vxlan", "hostilevx", victimVNI, "10.77.0.0/24"))
	const asks = `[{"clusterNetwork":"hostile-vxlan","ip":"dynamic"}]`
	victim, partner := pod(ns, "victim", c.nodes[0], asks), pod(ns, "partner", c.nodes[1], asks)
	near, far := unprivileged(pod(ns, "near", c.nodes[0], "")), unprivileged(pod(ns, "far", c.nodes[2], ""))
	c.startPods(t, victim, partner, near, far)

	target := c.addresses(t, victim, "eth0")[0]
	before := c.runOnNode(t, c.nodes[0], "bridge fdb show dev vx_hostilevx")
	var attacks []attack
	for _, from := range []*corev1.Pod{near, far} {
		for _, node := range c.nodes[:2] {
			marker := netip.AddrFrom4([4]byte{10, 77, 0, byte(200 + len(attacks))})
			attacks = append(attacks, attack{
				reason: fmt.Sprintf("Pod %s sends VXLAN to the VTEP of %s", from.Name, node),
				from:   from,
				args:   []string{"udp", c.vtepAddress(t, node) + ":4789", hex.EncodeToString(append(vxlanHeader(victimVNI), arpFrame(target, marker)...))},
				marker: marker,
			})
		}
	}
	c.runAttacks(t, victim, partner, attacks)
	if after := c.runOnNode(t, c.nodes[0], "bridge fdb show dev vx_hostilevx"); strings.Contains(after, attackerMAC) {
		t.Errorf("the VXLAN learned the attacker's MAC; before:\n%s\nafter:\n%s", before, after)
	}
}

// runAttacks runs each attack between two packets of the victim's partner, and fails the
// test for each that one of both has seen.
func (c *cluster) runAttacks(t *testing.T, victim, partner *corev1.Pod, attacks []attack) {
	t.Helper()
	pair := []*corev1.Pod{victim, partner}
	var captures []*capture
	for _, p := range pair {
		eps, err := c.endpoints(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		captures = append(captures, c.capture(t, p.Spec.NodeName, eps["eth0"].Spec.Netns, "eth0"))
	}
	for _, a := range attacks {
		c.runInPod(t, a.from, fmt.Sprintf("for i in 1 2 3; do %s %s && echo sent; done; echo that was all", framesInPod, strings.Join(a.args, " ")), "sent\nthat was all")
	}
	for i, p := range pair {
		// The segment works, and the capture shows what arrives on it.
		other := pair[1-i]
		source := c.addresses(t, other, "eth0")[0].String()
		captures[i].awaitPacket(t, "packets of "+other.Name+" arrive", func() { c.ping(t, other, p, "eth0") }, source+" > ", "ICMP echo request")
		packets := captures[i].allPackets(t)
		for _, a := range attacks {
			arrived := slices.IndexFunc(packets, func(packet string) bool { return strings.Contains(packet, a.marker.String()) })
			if arrived >= 0 {
				t.Errorf("%s: %s saw %s", a.reason, p.Name, strings.TrimSpace(packets[arrived]))
			}
		}
	}
}

// A Pod on a network of the NIC that carries a VXLAN reaches the nodes' VTEPs without the
// help of its node. It sends VXLAN as unicast IP in a broadcast frame, for which it needs
// CAP_NET_RAW, but no MAC of a node.
func TestHostilePodOnTheNICOfAVXLAN(t *testing.T) {
	t.Parallel()
	c, ns := shared, shared.namespace(t)
	c.installFrames(t)
	c.create(t, clusterNetwork("hostile-nic", "hostilenic", v1.TypeMACVLAN, v1.NetworkOptions{Device: secondNIC, CIDR: "10.79.1.0/24"}))
	c.create(t, clusterNetwork("hostile-vtep", "hostilevt", v1.TypeMACVLAN,
		v1.NetworkOptions{Device: secondNIC, VXLAN: victimVNI + 1, CIDR: "10.77.1.0/24"}))
	const asks = `[{"clusterNetwork":"hostile-vtep","ip":"dynamic"}]`
	victim, partner := pod(ns, "victim", c.nodes[0], asks), pod(ns, "partner", c.nodes[1], asks)
	attacker := withNetRaw(pod(ns, "attacker", c.nodes[2], `[{"clusterNetwork":"hostile-nic","ip":"dynamic"}]`))
	c.startPods(t, victim, partner, attacker)

	target, own := c.addresses(t, victim, "eth0")[0], c.addresses(t, attacker, "eth0")[0]
	var attacks []attack
	for i, node := range c.nodes[:2] {
		marker := netip.AddrFrom4([4]byte{10, 77, 1, byte(200 + i)})
		inner := append(vxlanHeader(victimVNI+1), arpFrame(target, marker)...)
		vtep := netip.MustParseAddr(c.addressOf(t, node, secondNIC))
		attacks = append(attacks, attack{
			reason: "VXLAN from a Pod's address to the VTEP of " + node, from: attacker, marker: marker,
			args: []string{"raw", "eth0", hex.EncodeToString(datagram(own, vtep, inner))},
		})
	}
	c.runAttacks(t, victim, partner, attacks)
}

// A Pod on the bare NIC, with CAP_NET_RAW, sends frames with the tags of a VLAN on that
// NIC: Pods on that VLAN see none of it.
func TestHostilePodLeavesNoBareNIC(t *testing.T) {
	t.Parallel()
	c, ns := shared, shared.namespace(t)
	c.installFrames(t)
	bare := clusterNetwork("hostile-bare", "hostileb", v1.TypeMACVLAN, v1.NetworkOptions{Device: secondNIC, CIDR: "10.79.0.0/24"})
	tagged := clusterNetwork("hostile-vlan", "hostilevl", v1.TypeIPVLAN, v1.NetworkOptions{Device: secondNIC, VLAN: victimVLAN, CIDR: "10.78.0.0/24"})
	c.create(t, bare)
	c.create(t, tagged)
	const asks = `[{"clusterNetwork":"hostile-vlan","ip":"dynamic"}]`
	victim, partner := pod(ns, "victim", c.nodes[0], asks), pod(ns, "partner", c.nodes[1], asks)
	attacker := withNetRaw(pod(ns, "attacker", c.nodes[2], `[{"clusterNetwork":"hostile-bare","ip":"dynamic"}]`))
	c.startPods(t, victim, partner, attacker)

	target := c.addresses(t, victim, "eth0")[0]
	variants := []struct {
		reason string
		tags   [][]byte
	}{
		{"one tag of 802.1Q", [][]byte{tag(0x8100, victimVLAN)}},
		{"a tag with a priority", [][]byte{tag(0x8100, 7<<13|victimVLAN)}},
		{"a priority tag around it", [][]byte{tag(0x8100, 0), tag(0x8100, victimVLAN)}},
		{"a service tag of 802.1ad around it", [][]byte{tag(0x88a8, 0), tag(0x8100, victimVLAN)}},
	}
	var attacks []attack
	for i, v := range variants {
		marker := netip.AddrFrom4([4]byte{10, 78, 0, byte(200 + i)})
		attacks = append(attacks, attack{
			reason: v.reason, from: attacker, marker: marker,
			args: []string{"raw", "eth0", hex.EncodeToString(arpFrame(target, marker, v.tags...))},
		})
	}
	c.runAttacks(t, victim, partner, attacks)
}

// installFrames puts the attackers' program on all nodes. Pods see it by mountFrames.
func (c *cluster) installFrames(t *testing.T) {
	t.Helper()
	program := filepath.Join(t.TempDir(), "frames")
	build := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-trimpath", "-ldflags=-s -w", "-o", program, "./cmd/frames")
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // the image has no loader
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build frames: %v\n%s", err, out)
	}
	for _, node := range c.nodes {
		file, err := os.Open(program)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		// Several tests may do this at once: each replaces the file in one step.
		script := fmt.Sprintf("mkdir -p %[1]s && cat >%[1]s/$$ && chmod 755 %[1]s/$$ && mv %[1]s/$$ %[1]s/frames", framesOnNode)
		code, err := c.lab.Run(t.Context(), node, remote.Request{Args: []string{"sh", "-c", script}}, remote.Streams{In: file})
		if err != nil || code != 0 {
			t.Fatalf("install frames on %s: exit code %d: %v", node, code, err)
		}
	}
}

// mountFrames shows a Pod the attackers' program of its node.
func mountFrames(p *corev1.Pod) *corev1.Pod {
	p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{
		Name: "frames", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: framesOnNode}},
	})
	main := &p.Spec.Containers[0]
	main.VolumeMounts = append(main.VolumeMounts, corev1.VolumeMount{Name: "frames", MountPath: filepath.Dir(framesInPod), ReadOnly: true})
	return p
}

// unprivileged makes an attacker of a Pod: an ordinary user without any capability.
func unprivileged(p *corev1.Pod) *corev1.Pod {
	user, yes, no := int64(65534), true, false
	p.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{
		RunAsUser: &user, RunAsNonRoot: &yes, AllowPrivilegeEscalation: &no,
		Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}
	return mountFrames(p)
}

// withNetRaw makes an attacker of a Pod that has CAP_NET_RAW and nothing else.
func withNetRaw(p *corev1.Pod) *corev1.Pod {
	p.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{
		Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}, Add: []corev1.Capability{"NET_RAW"}},
	}
	return mountFrames(p)
}

// attackerMAC is the source of forged frames.
const attackerMAC = "02:66:6f:72:67:65"

var attackerMACBytes = []byte{0x02, 0x66, 0x6f, 0x72, 0x67, 0x65}

// arpFrame is an ARP request (RFC 826) to the whole segment, as a frame with the VLAN tags
// given, outermost first. Who answers it has learned the sender's addresses.
func arpFrame(target, sender netip.Addr, tags ...[]byte) []byte {
	frame := slices.Concat([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, attackerMACBytes)
	for _, tag := range tags {
		frame = append(frame, tag...)
	}
	frame = append(frame, 0x08, 0x06, 0, 1, 0x08, 0, 6, 4, 0, 1)
	frame = append(append(frame, attackerMACBytes...), sender.AsSlice()...)
	return append(append(frame, make([]byte, 6)...), target.AsSlice()...)
}

// tag is a VLAN tag (IEEE 802.1Q, 9.3): TPID and identifier.
func tag(tpid, vlan uint16) []byte {
	return binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, tpid), vlan)
}

// vxlanHeader is RFC 7348's, section 5.
func vxlanHeader(vni uint32) []byte {
	return binary.BigEndian.AppendUint32([]byte{0x08, 0, 0, 0}, vni<<8)
}

// datagram is a broadcast frame with UDP to the VXLAN port (RFC 768, RFC 791).
func datagram(from, to netip.Addr, payload []byte) []byte {
	const ipHeader, udpHeader, port = 20, 8, 4789
	frame := slices.Concat([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, attackerMACBytes, []byte{0x08, 0x00})
	ip := []byte{0x45, 0}
	ip = binary.BigEndian.AppendUint16(ip, uint16(ipHeader+udpHeader+len(payload)))
	ip = append(ip, 0, 0, 0, 0, 64, 17, 0, 0)
	ip = append(append(ip, from.AsSlice()...), to.AsSlice()...)
	sum := uint32(0)
	for i := 0; i < ipHeader; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(ip[i:]))
	}
	binary.BigEndian.PutUint16(ip[10:], ^uint16(sum>>16+sum&0xffff))
	udp := binary.BigEndian.AppendUint16(nil, port)
	udp = binary.BigEndian.AppendUint16(udp, port)
	udp = binary.BigEndian.AppendUint16(udp, uint16(udpHeader+len(payload)))
	udp = append(udp, 0, 0) // no checksum, as RFC 7348 has it
	return slices.Concat(frame, ip, udp, payload)
}
