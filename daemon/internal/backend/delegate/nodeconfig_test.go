// SPDX-License-Identifier: Apache-2.0

package delegate_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
	"github.com/patchbay-cni/patchbay/daemon/internal/backend/delegate"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// newNodeBench returns a bench whose folder is the runtime's.
func newNodeBench(t *testing.T) *bench {
	t.Helper()
	b := newBench(t, delegate.Options{})
	b.backend = delegate.New(delegate.Options{Node: delegate.NodeConfigurations{Dir: b.conf, Own: ownFile}})
	return b
}

// ownFile is the name of Patchbay's file.
const ownFile = "00-patchbay.conflist"

// nodeSandbox returns a record of a Pod without a network.
func (b *bench) nodeSandbox() (*attach.Record, *attach.Interface) {
	rec, ifc := b.sandbox("")
	ifc.Network = *network.NodeConfiguration()
	return rec, ifc
}

// A Pod without a network gets the configuration that the runtime would use without Patchbay. It is never
// Patchbay's own, and a file that is not valid is not skipped.
func TestNodeConfiguration(t *testing.T) {
	t.Parallel()
	const (
		flat  = `{"cniVersion":"1.0.0","name":"flat","plugins":[{"type":"bridge"},{"type":"portmap"}]}`
		other = `{"cniVersion":"1.0.0","name":"other","plugins":[{"type":"ptp"}]}`
		own   = `{"cniVersion":"1.0.0","name":"patchbay","plugins":[{"type":"patchbay"}]}`
	)
	cases := map[string]struct {
		reason string
		files  map[string]string
		// file and want are the chosen file and configuration, err is a part of the error.
		file, want, err string
	}{
		"First":     {reason: "Runtimes sort the names.", files: map[string]string{ownFile: own, "20-b.conflist": other, "10-a.conflist": flat}, file: "10-a.conflist", want: flat},
		"Upper":     {reason: "The order is that of bytes.", files: map[string]string{ownFile: own, "a.conflist": other, "B.conflist": flat}, file: "B.conflist", want: flat},
		"BeforeOwn": {reason: "Another plugin took the first place.", files: map[string]string{"00-first.conflist": flat, ownFile: own}, file: "00-first.conflist", want: flat},
		"Single": {
			reason: "A single configuration becomes a list.", files: map[string]string{"10-a.conf": `{"cniVersion":"1.0.0","name":"flat","type":"bridge"}`},
			file: "10-a.conf", want: `{"cniVersion":"1.0.0","name":"flat","plugins":[{"cniVersion":"1.0.0","name":"flat","type":"bridge"}]}`,
		},
		"JSON": {
			reason: "Runtimes read .json, too.", files: map[string]string{"10-a.json": `{"name":"flat","type":"bridge"}`},
			file: "10-a.json", want: `{"name":"flat","plugins":[{"name":"flat","type":"bridge"}]}`,
		},
		"TypeOfOurs":  {reason: "A plugin of another project may have the name of a type.", files: map[string]string{"10-a.conf": `{"name":"v","type":"macvlan"}`}, file: "10-a.conf", want: `{"name":"v","plugins":[{"name":"v","type":"macvlan"}]}`},
		"OtherFiles":  {reason: "Runtimes do not read them.", files: map[string]string{"05-a.conflist.bak": "x", "06-kubeconfig": "x", "10-a.conflist": flat}, file: "10-a.conflist", want: flat},
		"OwnRenamed":  {reason: "The plugin would wait for its own answer.", files: map[string]string{"05-copy.conflist": own, "10-a.conflist": flat}, file: "10-a.conflist", want: flat},
		"OwnBroken":   {reason: "The daemon is writing it.", files: map[string]string{ownFile: "{", "10-a.conflist": flat}, file: "10-a.conflist", want: flat},
		"Multus":      {reason: "It would call Patchbay again.", files: map[string]string{"00-multus.conf": `{"name":"m","type":"multus"}`, ownFile: own, "10-a.conflist": flat}, file: "10-a.conflist", want: flat},
		"MultusThick": {reason: "The same of its thin client.", files: map[string]string{"00-multus.conf": `{"name":"m","type":"multus-shim"}`, "10-a.conflist": flat}, file: "10-a.conflist", want: flat},
		"Broken":      {reason: "The next file may be of another network.", files: map[string]string{"05-a.conflist": `{"name":`, "10-a.conflist": flat}, err: "05-a.conflist"},
		"Empty":       {reason: "An installer is writing it.", files: map[string]string{"05-a.conf": "", "10-a.conflist": flat}, err: "05-a.conf"},
		"PathAsType":  {reason: "A type becomes an executable of root.", files: map[string]string{"05-a.conf": `{"name":"x","type":"../../bin/sh"}`}, err: "without a path"},
		"NoPlugin":    {reason: "A list has plugins.", files: map[string]string{"05-a.conflist": `{"cniVersion":"1.0.0","name":"x","plugins":[]}`}, err: "05-a.conflist"},
		"OnlyOwn":     {reason: "There is no other.", files: map[string]string{ownFile: own}, err: "create a ClusterNetwork"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newNodeBench(t)
			for file, content := range tc.files {
				b.config(file, content)
			}
			_, ifc := b.nodeSandbox()
			err := b.prepare(ifc)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) || !strings.Contains(err.Error(), b.conf) {
					t.Fatalf("%s: got error %v, want one with %q and the folder", tc.reason, err, tc.err)
				}
				if got := errors.Is(err, attach.ErrNoDefaultNetwork); got != (name == "OnlyOwn") {
					t.Errorf("%s: got ErrNoDefaultNetwork %t", tc.reason, got)
				}
				return
			}
			if err != nil {
				t.Fatalf("%s: %v", tc.reason, err)
			}
			if diff := cmp.Diff([]string{tc.file, tc.want}, []string{ifc.Network.Ref.Name, string(ifc.DelegateConfig)}); diff != "" {
				t.Errorf("%s: -want +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// Without the runtime's folder there is no configuration.
func TestNodeConfigurationWithoutFolder(t *testing.T) {
	t.Parallel()
	b := newNodeBench(t)
	if err := os.RemoveAll(b.conf); err != nil {
		t.Fatal(err)
	}
	_, ifc := b.nodeSandbox()
	if err := b.prepare(ifc); !errors.Is(err, attach.ErrNoDefaultNetwork) {
		t.Errorf("got %v, want %v", err, attach.ErrNoDefaultNetwork)
	}
}

// All plugins of the list run, and DEL uses the list of the ADD although the file has changed.
func TestNodeConfigurationIsJournaled(t *testing.T) {
	t.Parallel()
	b := newNodeBench(t)
	b.config("10-a.conflist", `{"cniVersion":"1.0.0","name":"flat","plugins":[{"type":"bridge"},{"type":"portmap"}]}`)
	const result = `echo '{"cniVersion":"1.0.0","interfaces":[{"name":"eth0","sandbox":"/run/netns/a"}]}'`
	b.plugin("bridge", result)
	b.plugin("portmap", result)
	rec, ifc := b.nodeSandbox()
	if err := b.prepare(ifc); err != nil {
		t.Fatal(err)
	}
	if err := b.backend.Attach(context.Background(), rec, ifc); err != nil {
		t.Fatal(err)
	}
	b.config("10-a.conflist", `{"cniVersion":"1.0.0","name":"new","plugins":[{"type":"ptp"}]}`)
	if err := b.backend.Detach(context.Background(), rec, ifc); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, run := range b.runs() {
		got = append(got, strings.Join(strings.Fields(run)[:2], " "))
	}
	if diff := cmp.Diff([]string{"ADD bridge", "ADD portmap", "DEL portmap", "DEL bridge"}, got); diff != "" {
		t.Errorf("executions: -want +got:\n%s", diff)
	}
}

// The node's report names the configuration, and a plugin of it that is not installed.
func TestCheckerNodeConfiguration(t *testing.T) {
	t.Parallel()
	b := newNodeBench(t)
	b.config("10-a.conflist", `{"cniVersion":"1.0.0","name":"flat","plugins":[{"type":"bridge"},{"type":"portmap"}]}`)
	b.plugin("bridge", "")
	checker := delegate.Checker{BinDir: b.bin, ConfDir: b.conf, Own: ownFile}
	file, name, err := checker.NodeConfiguration()
	if err == nil || !strings.Contains(err.Error(), "portmap") || file != "10-a.conflist" || name != "flat" {
		t.Errorf("without a plugin: got %q, %q and %v, want the file, its name and an error about portmap", file, name, err)
	}
	b.plugin("portmap", "")
	if file, name, err := checker.NodeConfiguration(); err != nil || file != "10-a.conflist" || name != "flat" {
		t.Errorf("with all plugins: got %q, %q and %v", file, name, err)
	}
}

// Each plugin gets what the runtime passes for the capabilities that it declares, such as host ports, for the
// sandbox's first interface.
func TestCapabilities(t *testing.T) {
	t.Parallel()
	const ports = `{"portMappings":[{"hostPort":80}],"bandwidth":{"ingressRate":1}}`
	cases := map[string]struct {
		reason, ifName, runtimeConfig string
		want                          []any
	}{
		"First":  {"kubelet asks for host ports of the first interface.", "eth0", ports, []any{nil, map[string]any{"portMappings": []any{map[string]any{"hostPort": float64(80)}}}}},
		"Second": {"Another interface has the host ports.", "net0", ports, []any{nil, nil}},
		"None":   {"The Pod has no host ports.", "eth0", "", []any{nil, nil}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newNodeBench(t)
			b.config("10-a.conflist", `{"cniVersion":"1.0.0","name":"flat","plugins":[{"type":"bridge"},{"type":"portmap","capabilities":{"portMappings":true,"bandwidth":false}}]}`)
			const result = `echo '{"cniVersion":"1.0.0","interfaces":[{"name":"eth0","sandbox":"/run/netns/a"}]}'`
			b.plugin("bridge", result)
			b.plugin("portmap", result)
			rec, ifc := b.nodeSandbox()
			req := &attach.Request{IfName: tc.ifName, RuntimeConfig: []byte(tc.runtimeConfig)}
			if err := b.backend.Prepare(context.Background(), req, ifc); err != nil {
				t.Fatal(err)
			}
			if err := b.backend.Attach(context.Background(), rec, ifc); err != nil {
				t.Fatal(err)
			}
			var got []any
			for _, input := range b.inputs() {
				got = append(got, input["runtimeConfig"])
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s: runtimeConfig of each plugin: -want +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// An invalid runtimeConfig fails before anything is journaled.
func TestInvalidRuntimeConfig(t *testing.T) {
	t.Parallel()
	b := newNodeBench(t)
	b.config("10-a.conf", `{"name":"flat","type":"bridge"}`)
	_, ifc := b.nodeSandbox()
	if err := b.backend.Prepare(context.Background(), &attach.Request{IfName: "eth0", RuntimeConfig: []byte(`[]`)}, ifc); err == nil || ifc.DelegateConfig != nil {
		t.Errorf("got error %v and configuration %s, want an error and none", err, ifc.DelegateConfig)
	}
}
