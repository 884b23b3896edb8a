//go:build kernel

// SPDX-License-Identifier: Apache-2.0

package delegate_test

import (
	"context"
	"fmt"
	"net/netip"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
	"github.com/patchbay-cni/patchbay/daemon/internal/backend/delegate"
)

// plugins are Debian's containernetworking-plugins.
const plugins = "/usr/lib/cni"

// ownNamespace gives the test a network namespace of its own as the host's. The thread stays
// locked and ends with the test.
func ownNamespace(t *testing.T) {
	t.Helper()
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatalf("create a network namespace: %v", err)
	}
	invocation(t, "ip", "link", "set", "lo", "up")
}

// podNamespace starts a process in a network namespace and returns the
// namespace's path.
func podNamespace(t *testing.T) string {
	t.Helper()
	cmd := exec.Command("sleep", "1000")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return fmt.Sprintf("/proc/%d/ns/net", cmd.Process.Pid)
}

func invocation(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// links are the names of the links in the command's namespace, without lo.
func links(t *testing.T, prefix ...string) []string {
	t.Helper()
	args := slices.Concat(prefix, []string{"ip", "-o", "link", "show"})
	var names []string
	for line := range strings.Lines(invocation(t, args[0], args[1:]...)) {
		name, _, _ := strings.Cut(strings.Fields(line)[1], "@")
		if name = strings.TrimSuffix(name, ":"); name != "lo" {
			names = append(names, name)
		}
	}
	return names
}

// leases are host-local's files.
func leases(t *testing.T, dir string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "flat", "10.*"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range found {
		found[i] = filepath.Base(found[i])
	}
	return found
}

// The packaged reference plugins add an interface with an address to the Pod, and remove it: also
// if the namespace is gone or DEL comes twice.
func TestReferencePlugins(t *testing.T) {
	cases := map[string]struct {
		reason, plugin, config string
		host                   []string
	}{
		"Bridge": {
			"The configuration is a list.", "bridge",
			`{"cniVersion":"1.0.0","name":"flat","plugins":[{"type":"bridge","bridge":"cni0","isGateway":true,"ipam":{"type":"host-local","subnet":"10.1.0.0/24","dataDir":%[1]q}},{"type":"tuning","dataDir":%[1]q,"mtu":1300}]}`,
			[]string{"cni0"},
		},
		"PtP": {
			"The configuration is a single plugin's.", "ptp",
			`{"cniVersion":"0.4.0","name":"flat","type":"ptp","ipam":{"type":"host-local","subnet":"10.1.0.0/24","dataDir":%[1]q}}`, nil,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			ownNamespace(t)
			data := t.TempDir()
			b := newBench(t, delegate.Options{})
			file := "flat.conf"
			if strings.Contains(tc.config, "plugins") {
				file = "flat.conflist"
			}
			b.config(file, fmt.Sprintf(tc.config, data))
			rec, ifc := b.sandbox(tc.plugin)
			rec.Path = plugins
			for _, gone := range []bool{false, true} {
				rec.Netns = podNamespace(t)
				if err := b.prepare(ifc); err != nil {
					t.Fatal(err)
				}
				if err := b.backend.Attach(context.Background(), rec, ifc); err != nil {
					t.Fatal(err)
				}
				inPod(t, rec, ifc)
				if diff := cmp.Diff(1, len(leases(t, data))); diff != "" {
					t.Errorf("leases %q: -want +got:\n%s", leases(t, data), diff)
				}
				netns := rec.Netns
				if gone {
					rec.Netns = ""
				}
				for range 2 {
					if err := b.backend.Detach(context.Background(), rec, ifc); err != nil {
						t.Fatalf("DEL, namespace gone %t: %v", gone, err)
					}
				}
				if left := leases(t, data); len(left) > 0 {
					t.Errorf("leases after DEL: %q", left)
				}
				if !gone {
					if diff := cmp.Diff(tc.host, links(t)); diff != "" {
						t.Errorf("links on the host after DEL: -want +got:\n%s", diff)
					}
					if left := links(t, "nsenter", "--net="+netns); len(left) > 0 {
						t.Errorf("links in the Pod after DEL: %q", left)
					}
				}
			}
		})
	}
}

// inPod compares the record with the Pod's interface.
func inPod(t *testing.T, rec *attach.Record, ifc *attach.Interface) {
	t.Helper()
	text := invocation(t, "nsenter", "--net="+rec.Netns, "ip", "-o", "addr", "show", "dev", ifc.Name)
	_, rest, _ := strings.Cut(text, "inet ")
	address, _, _ := strings.Cut(rest, " ")
	if p, err := netip.ParsePrefix(address); err != nil || !strings.Contains(string(ifc.Result), p.String()) {
		t.Errorf("the Pod has %q, the result is %s", text, ifc.Result)
	}
	link := invocation(t, "nsenter", "--net="+rec.Netns, "ip", "-o", "link", "show", "dev", ifc.Name)
	if ifc.MAC == "" || !strings.Contains(link, ifc.MAC) {
		t.Errorf("the Pod has %s, the record has MAC %q", link, ifc.MAC)
	}
}

// If ADD fails in the second plugin, neither a link nor a lease is left.
func TestReferencePluginsRollBack(t *testing.T) {
	ownNamespace(t)
	data := t.TempDir()
	b := newBench(t, delegate.Options{})
	b.config("flat.conflist", fmt.Sprintf(
		`{"cniVersion":"1.0.0","name":"flat","plugins":[{"type":"ptp","ipam":{"type":"host-local","subnet":"10.1.0.0/24","dataDir":%[1]q}},{"type":"tuning","dataDir":%[1]q,"sysctl":{"net.ipv4.no.such":"1"}}]}`, data))
	rec, ifc := b.sandbox("ptp")
	rec.Path, rec.Netns = plugins, podNamespace(t)
	if err := b.prepare(ifc); err != nil {
		t.Fatal(err)
	}
	err := b.backend.Attach(context.Background(), rec, ifc)
	if err == nil || !strings.Contains(err.Error(), "CNI plugin tuning: ADD") {
		t.Fatalf("got %v, want tuning's error", err)
	}
	if left := leases(t, data); len(left) > 0 {
		t.Errorf("leases: %q", left)
	}
	if left := append(links(t), links(t, "nsenter", "--net="+rec.Netns)...); len(left) > 0 {
		t.Errorf("links: %q", left)
	}
}
