// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package firewall

import (
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/patchbay-cni/patchbay/netwatcher"
)

// newHost creates a network namespace.
func newHost(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "net")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			err = unix.Mount("/proc/thread-self/ns/net", path, "", unix.MS_BIND, "")
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatalf("create a network namespace (the test requires root): %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(path, unix.MNT_DETACH) })
	return path
}

// nft runs the program in the namespace.
func nft(t *testing.T, host string, args ...string) string {
	t.Helper()
	ns, err := netns.GetFromPath(host)
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	var out []byte
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine
		err := netns.Set(ns)
		if err == nil {
			out, err = exec.Command("nft", args...).CombinedOutput()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatalf("nft %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

func open(t *testing.T, host string) *Firewall {
	t.Helper()
	f, err := Open(host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func apply(t *testing.T, f *Firewall, want netwatcher.VXLANFilter) bool {
	t.Helper()
	changed, err := f.Apply(t.Context(), want)
	if err != nil {
		t.Fatal(err)
	}
	return changed
}

func small() netwatcher.VXLANFilter {
	v4, v6 := netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("2001:db8::2")
	return netwatcher.VXLANFilter{
		VNIs:      []int{700, 16777214},
		Receivers: []netwatcher.Receiver{{VNI: 700, Link: "ens4"}, {VNI: 16777214, Link: "a-long-nic-name"}},
		Senders:   []netwatcher.Sender{{Link: "a-long-nic-name", VTEP: v6}, {Link: "ens4", VTEP: v4}},
		VTEPs:     []netip.Addr{v4, v6},
	}
}

const others = `table ip patchbay {
	chain input {
		type filter hook input priority filter; policy accept;
		counter packets 0 bytes 0 accept
	}
}
table inet kube-proxy {
	set vnis {
		type ipv4_addr
		elements = { 192.0.2.9 }
	}
}
`

// Nft can list the table, and other tables do not change.
func TestTable(t *testing.T) {
	host := newHost(t)
	file := filepath.Join(t.TempDir(), "rules")
	if err := os.WriteFile(file, []byte(others), 0o600); err != nil {
		t.Fatal(err)
	}
	nft(t, host, "-f", file)
	before := nft(t, host, "list", "ruleset")
	f := open(t, host)
	if !apply(t, f, small()) {
		t.Error("the first table is a change")
	}
	want, err := os.ReadFile("testdata/table.nft")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), nft(t, host, "-nn", "list", "table", "inet", tableName)); diff != "" {
		t.Errorf("table: -want +got\n%s", diff)
	}
	if err := f.Remove(); err != nil {
		t.Fatal(err)
	}
	if err := f.Remove(); err != nil {
		t.Errorf("remove a missing table: %v", err)
	}
	if diff := cmp.Diff(before, nft(t, host, "list", "ruleset")); diff != "" {
		t.Errorf("other tables: -before +after\n%s", diff)
	}
}

// Apply restores a changed table, and writes an unchanged one only once.
func TestRepair(t *testing.T) {
	cases := map[string]struct {
		reason string
		do     [][]string
	}{
		"Flushed":  {"Another program flushed all tables.", [][]string{{"flush", "ruleset"}}},
		"Rules":    {"Another program flushed a chain.", [][]string{{"flush", "chain", "inet", tableName, "vxlan-input"}}},
		"Accepted": {"Another program inserted a rule.", [][]string{{"insert", "rule", "inet", tableName, "vxlan-input", "accept"}}},
		"Element":  {"Another program deleted a VNI.", [][]string{{"delete", "element", "inet", tableName, "vnis", "{ 700 }"}}},
		"Sender":   {"Another program added a VTEP.", [][]string{{"add", "element", "inet", tableName, "senders4", `{ "ens4" . 192.0.2.66 }`}}},
		"Unhooked": {"Another program deleted the jump of a base chain.", [][]string{{"flush", "chain", "inet", tableName, "input"}}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			host := newHost(t)
			f := open(t, host)
			apply(t, f, small())
			before := nft(t, host, "list", "ruleset")
			if apply(t, f, small()) {
				t.Error("an unchanged table was written again")
			}
			for _, args := range tc.do {
				nft(t, host, args...)
			}
			if !apply(t, f, small()) {
				t.Errorf("%s The table was not restored.", tc.reason)
			}
			if diff := cmp.Diff(before, nft(t, host, "list", "ruleset")); diff != "" {
				t.Errorf("%s -before +after\n%s", tc.reason, diff)
			}
		})
	}
}

// A table of the previous daemon is replaced, and deleted when no network has a VXLAN.
func TestRestart(t *testing.T) {
	host := newHost(t)
	apply(t, open(t, host), small())
	f := open(t, host)
	if !apply(t, f, small()) {
		t.Error("a table of the previous daemon must be written again")
	}
	apply(t, open(t, host), netwatcher.VXLANFilter{})
	if rules := nft(t, host, "list", "ruleset"); rules != "" {
		t.Errorf("without a VXLAN there are still rules:\n%s", rules)
	}
}

// The table of a thousand networks on five thousand nodes is one write.
func TestLarge(t *testing.T) {
	const networks, nodes = 1000, 5000
	var want netwatcher.VXLANFilter
	for i := range networks {
		want.VNIs = append(want.VNIs, i+1)
		want.Receivers = append(want.Receivers, netwatcher.Receiver{VNI: i + 1, Link: "ens4"})
	}
	for i := range nodes {
		a := netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)})
		want.Senders, want.VTEPs = append(want.Senders, netwatcher.Sender{Link: "ens4", VTEP: a}), append(want.VTEPs, a)
	}
	f := open(t, newHost(t))
	start := time.Now()
	apply(t, f, want)
	written := time.Now()
	if apply(t, f, want) {
		t.Error("the table differs from the written one")
	}
	t.Logf("%d networks on %d nodes: written in %v, compared in %v", networks, nodes, written.Sub(start).Round(time.Millisecond), time.Since(written).Round(time.Millisecond))
}
