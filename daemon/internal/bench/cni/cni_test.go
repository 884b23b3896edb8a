// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-cni/patchbay/cni/config"
	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
	"github.com/patchbay-cni/patchbay/daemon/internal/journal"
)

// The flags are parsed, and an unknown one is rejected.
func TestOptions(t *testing.T) {
	t.Parallel()
	if err := run(t.Context(), []string{"-no-such-flag"}, io.Discard); err == nil {
		t.Error("run with an unknown flag: got no error, want one")
	}
	o, err := parse([]string{"-runs", "2", "-stage", stageInner})
	if err != nil || o.runs != 2 || o.stage != stageInner || o.pods == 0 {
		t.Errorf("parse: got %+v, %v", o, err)
	}
}

// The plugin accepts the configuration of the benchmark.
func TestPatchbayConfiguration(t *testing.T) {
	t.Parallel()
	c, err := config.ParseConfig([]byte(patchbayPlugin(options{dir: "/var/tmp/x"}).config))
	if err != nil {
		t.Fatal(err)
	}
	if c.Socket != socketIn("/var/tmp/x") {
		t.Errorf("got socket %s, want that of the daemon", c.Socket)
	}
}

// A contender in a cluster uses the Pods of the cluster, each with a new sandbox.
func TestSandboxes(t *testing.T) {
	t.Parallel()
	pods := []pod{{"a", "uid-a"}, {"b", "uid-b"}}
	got := []sandbox{patchbayInCluster(options{}, pods).sandbox(2, 3, "/n"), patchbayPlugin(options{}).sandbox(2, 3, "/n")}
	want := []sandbox{{pods[1], "r2p3", "/n"}, {pod{"r2p3", "r2p3"}, "r2p3", "/n"}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(sandbox{}, pod{})); diff != "" {
		t.Errorf("sandboxes: -want +got\n%s", diff)
	}
}

// A result must have one address.
func TestCheckOneAddress(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason, out string
		ok          bool
	}{
		"One":     {"The result has the requested address.", `{"ips":[{"address":"10.0.0.1/16"}]}`, true},
		"None":    {"A plugin that does less would win.", `{"interfaces":[]}`, false},
		"Two":     {"The configuration requests one address.", `{"ips":[{},{}]}`, false},
		"Nothing": {"There is no result.", ``, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := checkOneAddress([]byte(tc.out)); (err == nil) != tc.ok {
				t.Errorf("%s: got %v", tc.reason, err)
			}
		})
	}
}

// A row has the figures of all runs.
func TestRow(t *testing.T) {
	t.Parallel()
	got := row("x", []outcome{{
		elapsed: 2 * time.Second,
		samples: []sample{{time.Millisecond, 2 * time.Millisecond}, {3 * time.Millisecond, 4 * time.Millisecond}},
	}})
	var figures []float64
	for _, s := range got.Columns {
		figures = append(figures, s.Median())
	}
	if diff := cmp.Diff([]float64{3, 1, 3, 2, 4, 1}, figures); diff != "" {
		t.Errorf("both, adds, adds p99, dels, dels p99, Pods/s: -want +got:\n%s", diff)
	}
}

// script returns a contender whose plugin is a shell script.
func script(t *testing.T, text string) contender {
	t.Helper()
	path := filepath.Join(t.TempDir(), "plugin")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o755); err != nil {
		t.Fatal(err)
	}
	return contender{name: "script", plugin: path, config: "{}"}
}

// runPods runs each Pod once, and returns the error of a plugin.
func TestRunPods(t *testing.T) {
	t.Parallel()
	c := script(t, `[ "$CNI_COMMAND" = DEL ] || echo '{"ips":[{"address":"10.0.0.1/16"}]}'`)
	out, err := runPods(t.Context(), c, []string{"/a", "/b", "/c"}, 7, 0)
	if err != nil || len(out.samples) != 7 {
		t.Fatalf("runPods: got %d samples and error %v, want 7", len(out.samples), err)
	}
	for _, s := range out.samples {
		if s.add <= 0 || s.del <= 0 {
			t.Errorf("got sample %+v, want positive durations", s)
		}
	}
	if _, err := runPods(t.Context(), script(t, "echo broken; exit 1"), []string{"/a"}, 1, 0); err == nil {
		t.Error("failing plugin: got no error, want one")
	}
}

// firstByte returns after the plugin's request and responds to it.
func TestFirstByte(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	plugin := filepath.Join(t.TempDir(), "patchbay")
	build(t, plugin)
	for range 2 {
		if took, err := firstByte(t.Context(), plugin, socket, l); err != nil || took <= 0 {
			t.Errorf("firstByte: got %v and error %v, want a positive duration", took, err)
		}
	}
}

// The fake cluster allocates each address once and frees it.
func TestFakeCluster(t *testing.T) {
	t.Parallel()
	j, err := journal.Open(filepath.Join(t.TempDir(), "j"), journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = j.Close() }()
	c, err := newFakeCluster(j)
	if err != nil {
		t.Fatal(err)
	}
	rec := &attach.Record{ContainerID: "c", IfName: "eth0"}
	if err := j.Put(rec); err != nil {
		t.Fatal(err)
	}
	a, _, err := c.Claim(context.Background(), c.net, attach.AddressRequest{Dynamic: true}, attach.AddressRequest{})
	if err != nil {
		t.Fatal(err)
	}
	b, _, err := c.Claim(context.Background(), c.net, attach.AddressRequest{Dynamic: true}, attach.AddressRequest{})
	if err != nil || a == b {
		t.Errorf("two claims: got %s, %s and error %v, want different addresses", a, b, err)
	}
	c.Discard(c.net, a, a)
	c.Release(rec)
	c.background.Wait()
	if recs, err := j.List(); len(recs) != 0 || err != nil {
		t.Errorf("after Release: got records %v and error %v, want neither", recs, err)
	}
	if got := c.pool.Allocated(); got != 1 {
		t.Errorf("addresses in use: got %d, want 1", got)
	}
}
