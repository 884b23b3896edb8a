// SPDX-License-Identifier: Apache-2.0

//go:build sriov

package sriov_test

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
	"github.com/patchbay-cni/patchbay/daemon/internal/backend/sriov"
	"github.com/patchbay-cni/patchbay/daemon/internal/kernel"
	"github.com/patchbay-cni/patchbay/daemon/internal/sysfs"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// parent is a physical function with seven virtual ones. Its cable ends at a second one, pf1.
const parent = "pf0"

// boot is the boot ID of the tests.
const boot = "this-boot"

// newBackend returns a backend of this machine.
func newBackend(t *testing.T) *sriov.Backend {
	t.Helper()
	host, err := kernel.Open("")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := host.Close(); err != nil {
			t.Error(err)
		}
	})
	return sriov.New(sriov.Options{
		Kernel: host.Functions(sysfs.FS{Root: sysfs.DefaultRoot}), BootID: boot, DeviceInfoDir: filepath.Join(t.TempDir(), "devinfo"),
		StateDir: filepath.Join(t.TempDir(), "functions"),
	})
}

// function returns a virtual function of the physical one.
func function(t *testing.T, index int) *sysfs.Function {
	t.Helper()
	all, err := sysfs.FS{Root: sysfs.DefaultRoot}.Functions(parent)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		if f.Index == index {
			return f
		}
	}
	t.Fatalf("%s has no function %d: %v", parent, index, all)
	return nil
}

// pod is a Pod with one interface, net1.
type pod struct {
	// netns is the name of its network namespace.
	netns string
	rec   *attach.Record
	ifc   *attach.Interface
}

var lastPod atomic.Int32

// newPod makes the network namespace of a Pod that gets the function on the network. The namespace ends
// with the test.
func newPod(t *testing.T, f *sysfs.Function, n network.Network) *pod {
	t.Helper()
	number := lastPod.Add(1)
	p := &pod{netns: fmt.Sprintf("pod%d", number)}
	run(t, "ip", "netns", "add", p.netns)
	t.Cleanup(func() {
		if _, err := os.Stat(p.path()); err == nil {
			run(t, "ip", "netns", "del", p.netns)
		}
	})
	n.Ref, n.Type, n.DevicePool = network.Ref{Kind: "ClusterNetwork", Name: "fast"}, "sriov", "example.com/fast"
	p.rec = &attach.Record{ContainerID: p.netns, IfName: "eth0", Netns: p.path(), BootID: boot}
	p.rec.Interfaces = []attach.Interface{{Name: "net1", Network: n, DeviceID: f.Address}}
	p.ifc = &p.rec.Interfaces[0]
	if n.V4 != nil {
		p.ifc.V4 = netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(number)}), 24)
	}
	if n.V6 != nil {
		p.ifc.V6 = netip.PrefixFrom(netip.AddrFrom16([16]byte{0: 0xfd, 15: byte(number)}), 64)
	}
	return p
}

func (p *pod) path() string { return "/run/netns/" + p.netns }

// attach attaches the Pod's interface, and detaches it at the end of the test.
func (p *pod) attach(t *testing.T, b *sriov.Backend) {
	t.Helper()
	if err := p.add(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Detach(context.Background(), p.rec, p.ifc); err != nil {
			t.Error(err)
		}
	})
}

// add does what ADD does.
func (p *pod) add(ctx context.Context, b *sriov.Backend) error {
	if err := b.Prepare(ctx, nil, p.ifc); err != nil {
		return err
	}
	return b.Attach(ctx, p.rec, p.ifc)
}

// run runs a command and returns its output.
func run(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// onHost describes the function on the host: the line of ip(8) at the physical function, and its
// interface. The physical function reports no MAC, or the interface's own when the driver has told it:
// both are OWN.
func onHost(t *testing.T, f *sysfs.Function) string {
	t.Helper()
	text := settingsOf(t, f)
	if now := function(t, f.Index); now.Netdev != "" {
		own := link(run(t, "ip", "-d", "link", "show", "dev", now.Netdev))
		mac := regexp.MustCompile(`link/ether (\S+)`).FindStringSubmatch(own)[1]
		text = strings.NewReplacer("00:00:00:00:00:00", "OWN", mac, "OWN").Replace(text) + own
	}
	return text
}

// settingsOf returns the function's line in "ip link show" of the physical function.
func settingsOf(t *testing.T, f *sysfs.Function) string {
	t.Helper()
	for line := range strings.Lines(run(t, "ip", "link", "show", "dev", parent)) {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(line), fmt.Sprintf("vf %d ", f.Index)); ok {
			return "vf " + strings.Join(strings.Fields(rest), " ") + "\n"
		}
	}
	t.Fatalf("%s does not report function %d", parent, f.Index)
	return ""
}

// inPod describes the interface in the Pod, with addresses and routes.
func (p *pod) inPod(t *testing.T) string {
	t.Helper()
	text := link(run(t, "ip", "-n", p.netns, "-d", "link", "show", "dev", p.ifc.Name))
	for line := range strings.Lines(run(t, "ip", "-n", p.netns, "-o", "address", "show", "dev", p.ifc.Name)) {
		if fields := strings.Fields(line); !strings.HasPrefix(fields[3], "fe80:") {
			text += "address " + fields[3] + "\n"
		}
	}
	for _, family := range []string{"-4", "-6"} {
		for line := range strings.Lines(run(t, "ip", family, "-n", p.netns, "route", "show", "dev", p.ifc.Name)) {
			if !strings.HasPrefix(line, "fe80:") && !strings.Contains(line, "proto kernel") {
				text += "route " + strings.Join(strings.Fields(line), " ") + "\n"
			}
		}
	}
	return text
}

// linkPart are the parts of "ip -d link show" that Patchbay sets, in their order.
var linkPart = regexp.MustCompile(`^\d+: ([^:@]+)|[<,](UP)[,>]| (mtu \d+)|(group (?:[1-9]\d*|[a-ce-z]\w*))|(link/ether [0-9a-f:]+)|(promiscuity [1-9]\d*)|(alias \S+)`)

// link returns these parts in one line.
func link(text string) string {
	var parts []string
	for _, m := range linkPart.FindAllStringSubmatch(text, -1) {
		parts = append(parts, strings.Join(m[1:], ""))
	}
	return "link " + strings.Join(parts, " ") + "\n"
}
