// SPDX-License-Identifier: Apache-2.0

package delegate_test

import (
	"context"
	"encoding/json"
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
		"Chained": {
			reason: "Other programs have added plugins to the list.",
			files:  map[string]string{"10-a.conflist": other, "other/20-b.conf": `{"type":"tuning"}`, "other/10-a.conf": `{"type":"bandwidth"}`, "other/README": "x"},
			file:   "10-a.conflist", want: `{"cniVersion":"1.0.0","name":"other","plugins":[{"type":"ptp"},{"type":"bandwidth"},{"type":"tuning"}]}`,
		},
		"OnlyChained": {
			reason: "The list itself has no plugins.",
			files:  map[string]string{"10-a.conflist": `{"cniVersion":"1.0.0","name":"other"}`, "other/10-a.conf": `{"type":"ptp"}`},
			file:   "10-a.conflist", want: `{"cniVersion":"1.0.0","name":"other","plugins":[{"type":"ptp"}]}`,
		},
		"OnlyInlined": {
			reason: "The list does not want them.",
			files:  map[string]string{"10-a.conflist": `{"cniVersion":"1.0.0","loadOnlyInlinedPlugins":true,"name":"other","plugins":[{"type":"ptp"}]}`, "other/10-a.conf": `{"type":"tuning"}`},
			file:   "10-a.conflist", want: `{"cniVersion":"1.0.0","loadOnlyInlinedPlugins":true,"name":"other","plugins":[{"type":"ptp"}]}`,
		},
		"BrokenChained": {reason: "A plugin may be the one that the Pods need.", files: map[string]string{"10-a.conflist": other, "other/10-a.conf": `{`}, err: "10-a.conflist"},
		"OnlyOwn":       {reason: "There is no other.", files: map[string]string{ownFile: own}, err: "create a ClusterNetwork"},
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
				if !errors.Is(err, attach.ErrNoDefaultNetwork) {
					t.Errorf("%s: got error %v, want one that is reported as NoDefaultNetwork", tc.reason, err)
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

// With a name, Pods get this file and no other one, whatever sorts before it. A file that cannot give them a network
// is an error, also for the daemon's readiness, and not the next file.
func TestNamedNodeConfiguration(t *testing.T) {
	t.Parallel()
	const (
		flat   = `{"cniVersion":"1.0.0","name":"flat","plugins":[{"type":"bridge"}]}`
		other  = `{"cniVersion":"1.0.0","name":"other","plugins":[{"type":"ptp"}]}`
		own    = `{"cniVersion":"1.0.0","name":"patchbay","plugins":[{"type":"patchbay"}]}`
		multus = `{"cniVersion":"1.0.0","name":"m","plugins":[{"type":"multus-shim"}]}`
	)
	cases := map[string]struct {
		reason, named string
		files         map[string]string
		// file is the chosen one, and err a part of the error. A forbidden file is no fault of the node.
		file, err string
		forbidden bool
	}{
		"Last":      {reason: "Two files sort before it.", named: "20-b.conflist", files: map[string]string{ownFile: own, "05-a.conflist": other, "10-a.conflist": other, "20-b.conflist": flat}, file: "20-b.conflist"},
		"Broken":    {reason: "Another file is broken.", named: "20-b.conflist", files: map[string]string{"05-a.conflist": "{", "20-b.conflist": flat}, file: "20-b.conflist"},
		"Single":    {reason: "It has a single plugin.", named: "20-b.conf", files: map[string]string{"20-b.conf": `{"cniVersion":"1.0.0","name":"flat","type":"bridge"}`}, file: "20-b.conf"},
		"Missing":   {reason: "The next file may be of another network.", named: "20-b.conflist", files: map[string]string{"10-a.conflist": other}, err: "of this node must have the file: install the CNI plugin"},
		"NoFolder":  {reason: "Nothing is installed.", named: "none.conflist", err: "must have the file"},
		"Renamed":   {reason: "Cilium has renamed it.", named: "20-b.conflist", files: map[string]string{"20-b.conflist.cilium_bak": flat, "05-cilium.conflist": other}, err: "must have the file"},
		"Ending":    {reason: "Names are complete.", named: "20-b", files: map[string]string{"20-b.conflist": flat}, err: "that ends in .conflist, .conf or .json"},
		"Invalid":   {reason: "It is half written.", named: "20-b.conflist", files: map[string]string{"10-a.conflist": other, "20-b.conflist": `{"name":`}, err: "must be a valid CNI configuration"},
		"Path":      {reason: "It is not in the runtime's folder.", named: "../20-b.conflist", files: map[string]string{"20-b.conflist": flat}, err: "without a folder"},
		"Below":     {reason: "Folders in the folder are for chained plugins.", named: "flat/20-b.conf", files: map[string]string{"flat/20-b.conf": `{"name":"flat","type":"bridge"}`}, err: "without a folder"},
		"Folder":    {reason: "A folder is no file.", named: "flat.conf", files: map[string]string{"flat.conf/20-b.conf": `{"name":"flat","type":"bridge"}`}, err: "must be a regular file"},
		"Own":       {reason: "It would wait for its own answer.", named: ownFile, files: map[string]string{ownFile: own}, err: "must not be Patchbay's own file"},
		"OwnCopy":   {reason: "The same under another name.", named: "20-b.conflist", files: map[string]string{"20-b.conflist": own}, err: "must not call Patchbay or Multus"},
		"Multus":    {reason: "It calls Patchbay again.", named: "00-multus.conflist", files: map[string]string{"00-multus.conflist": multus, "10-a.conflist": other}, err: "must not call Patchbay or Multus"},
		"Forbidden": {reason: "A network keeps it for others.", named: "mgmt.conflist", files: map[string]string{"mgmt.conflist": flat, "10-a.conflist": other}, err: "must not be the CNI configuration of a network for other namespaces", forbidden: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, delegate.Options{})
			for file, content := range tc.files {
				b.config(file, content)
			}
			node := delegate.NodeConfigurations{Dir: b.conf, Own: ownFile, Named: tc.named, Forbidden: func(context.Context, string) (map[string]bool, error) {
				return map[string]bool{"mgmt": true}, nil
			}}
			b.backend = delegate.New(delegate.Options{Node: node})
			_, ifc := b.nodeSandbox()
			err, checked := b.prepare(ifc), delegate.Checker{Node: node}.CheckNamed()
			if tc.err == "" {
				if err != nil || checked != nil || ifc.Network.Ref.Name != tc.file || !strings.Contains(string(ifc.DelegateConfig), `"bridge"`) {
					t.Errorf("%s: got file %q, configuration %s and errors %v and %v, want %s", tc.reason, ifc.Network.Ref.Name, ifc.DelegateConfig, err, checked, tc.file)
				}
				return
			}
			if !errors.Is(err, attach.ErrNoDefaultNetwork) || !strings.Contains(err.Error(), tc.err) || !strings.Contains(err.Error(), "--default-delegate="+tc.named) {
				t.Errorf("%s: got error %v, want %v with %q and the flag", tc.reason, err, attach.ErrNoDefaultNetwork, tc.err)
			}
			if ifc.DelegateConfig != nil {
				t.Errorf("%s: got configuration %s in spite of the error", tc.reason, ifc.DelegateConfig)
			}
			if (checked == nil) != tc.forbidden {
				t.Errorf("%s: the daemon's readiness: got error %v, want one unless the file is there and kept for others", tc.reason, checked)
			}
		})
	}
}

// Without a name, the daemon's readiness needs no file: Pods with an annotation start.
func TestNothingNamed(t *testing.T) {
	t.Parallel()
	if err := (delegate.Checker{Node: delegate.NodeConfigurations{Dir: t.TempDir(), Own: ownFile}}).CheckNamed(); err != nil {
		t.Errorf("got %v, want no error", err)
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
	checker := delegate.Checker{BinDir: b.bin, ConfDir: b.conf, Node: delegate.NodeConfigurations{Dir: b.conf, Own: ownFile}}
	file, name, err := checker.NodeConfiguration(t.Context())
	if err == nil || !strings.Contains(err.Error(), "portmap") || file != "10-a.conflist" || name != "flat" {
		t.Errorf("without a plugin: got %q, %q and %v, want the file, its name and an error about portmap", file, name, err)
	}
	b.plugin("portmap", "")
	if file, name, err := checker.NodeConfiguration(t.Context()); err != nil || file != "10-a.conflist" || name != "flat" {
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
			rec = journaled(t, rec)
			if err := b.backend.Detach(context.Background(), rec, &rec.Interfaces[0]); err != nil {
				t.Fatal(err)
			}
			var got []any
			for _, input := range b.inputs() {
				got = append(got, input["runtimeConfig"])
			}
			// DEL runs the plugins in reverse order.
			if diff := cmp.Diff([]any{tc.want[0], tc.want[1], tc.want[1], tc.want[0]}, got); diff != "" {
				t.Errorf("%s: runtimeConfig of each plugin in ADD and DEL: -want +got:\n%s", tc.reason, diff)
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

// Pods do not get the configuration of a network that is for other namespaces, and none if the flag forbids it.
func TestForbiddenNodeConfiguration(t *testing.T) {
	t.Parallel()
	const flat = `{"cniVersion":"1.0.0","name":"flat","plugins":[{"type":"bridge"}]}`
	unanswered := errors.New("no answer")
	cases := map[string]struct {
		reason    string
		files     []string
		forbidden map[string]bool
		disabled  bool
		fails     error
		want, err string
	}{
		"Skipped":  {reason: "The first file is of a network for other namespaces.", files: []string{"05-mgmt.conflist", "10-a.conflist"}, forbidden: map[string]bool{"05-mgmt": true}, want: "10-a.conflist"},
		"Nothing":  {reason: "The only file is.", files: []string{"05-mgmt.conf"}, forbidden: map[string]bool{"05-mgmt": true}, err: "05-mgmt.conf is of a network for other namespaces"},
		"Unknown":  {reason: "It is not known which files are.", files: []string{"10-a.conflist"}, fails: unanswered, err: "no answer"},
		"Disabled": {reason: "The flag says so.", files: []string{"10-a.conflist"}, disabled: true, err: "--node-configuration"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newNodeBench(t)
			for _, file := range tc.files {
				content := flat
				if strings.HasSuffix(file, ".conf") {
					content = `{"cniVersion":"1.0.0","name":"flat","type":"bridge"}`
				}
				b.config(file, content)
			}
			asked := ""
			b.backend = delegate.New(delegate.Options{Node: delegate.NodeConfigurations{
				Dir: b.conf, Own: ownFile, Disabled: tc.disabled,
				Forbidden: func(_ context.Context, namespace string) (map[string]bool, error) {
					asked = namespace
					return tc.forbidden, tc.fails
				},
			}})
			_, ifc := b.nodeSandbox()
			err := b.backend.Prepare(t.Context(), &attach.Request{PodNamespace: "ns"}, ifc)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) || !errors.Is(err, tc.fails) && tc.fails != nil {
					t.Errorf("%s: got %v, want an error with %q", tc.reason, err, tc.err)
				}
				return
			}
			if err != nil || ifc.Network.Ref.Name != tc.want || asked != "ns" {
				t.Errorf("%s: got file %q for namespace %q and error %v, want %q", tc.reason, ifc.Network.Ref.Name, asked, err, tc.want)
			}
		})
	}
}

// The node's report tells when the runtime does not use Patchbay's file.
func TestCheckOwnFirst(t *testing.T) {
	t.Parallel()
	const (
		own    = `{"cniVersion":"1.0.0","name":"patchbay","plugins":[{"type":"patchbay"}]}`
		flat   = `{"cniVersion":"1.0.0","name":"flat","plugins":[{"type":"bridge"}]}`
		multus = `{"cniVersion":"1.0.0","name":"multus","plugins":[{"type":"multus-shim"}]}`
	)
	cases := map[string]struct {
		reason string
		files  map[string]string
		err    string
	}{
		"First":   {"No file is before it.", map[string]string{ownFile: own, "10-a.conflist": flat}, ""},
		"Multus":  {"Multus calls Patchbay.", map[string]string{ownFile: own, "00-multus.conflist": multus}, ""},
		"Renamed": {"Cilium renames all files of others.", map[string]string{ownFile + ".cilium_bak": own, "05-cilium.conflist": flat}, "05-cilium.conflist"},
		"Gone":    {"Another program has removed it.", map[string]string{"readme": own}, "cni.exclusive must be false"},
		"Before":  {"Another file sorts before it.", map[string]string{"00-a.conflist": flat, ownFile: own}, "rename the file"},
		"Broken":  {"The runtime starts no Pod.", map[string]string{"00-a.conflist": "{", ownFile: own}, "correct or remove"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newNodeBench(t)
			for file, content := range tc.files {
				b.config(file, content)
			}
			err := delegate.Checker{Node: delegate.NodeConfigurations{Dir: b.conf, Own: ownFile}}.CheckOwnFirst()
			if (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
				t.Errorf("%s: got %v, want an error with %q", tc.reason, err, tc.err)
			}
		})
	}
}

// Before the installation, the files are found that would sort before Patchbay's.
func TestEarlierConfigurations(t *testing.T) {
	t.Parallel()
	b := newNodeBench(t)
	for file, content := range map[string]string{
		"00-a.conflist":  `{"cniVersion":"1.0.0","name":"flat","plugins":[{"type":"bridge"}]}`,
		"00-b.conflist":  "{",
		"00-multus.conf": `{"cniVersion":"1.0.0","name":"multus","type":"multus"}`,
		"10-late.conf":   `{"cniVersion":"1.0.0","name":"late","type":"bridge"}`,
	} {
		b.config(file, content)
	}
	got, err := delegate.Checker{Node: delegate.NodeConfigurations{Dir: b.conf, Own: ownFile}}.EarlierConfigurations()
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []struct {
		reason, file   string
		calls, invalid bool
	}{
		{reason: "the runtime uses this file instead of Patchbay's", file: "00-a.conflist"},
		{reason: "the runtime may start no Pod", file: "00-b.conflist", invalid: true},
		{reason: "Multus calls the first file beside its own", file: "00-multus.conf", calls: true},
	} {
		if i >= len(got) || got[i].File != want.file || got[i].CallsPatchbay != want.calls || (got[i].Err != nil) != want.invalid {
			t.Errorf("%s: got %+v, want %+v in place %d", want.reason, got, want, i)
		}
	}
	if len(got) != 3 {
		t.Errorf("got %+v, want no file that sorts after Patchbay's", got)
	}
}

// journaled returns a record as the journal has it.
func journaled(t *testing.T, rec *attach.Record) *attach.Record {
	t.Helper()
	data, err := json.Marshal(rec)
	if err != nil {
		t.Fatal(err)
	}
	read := &attach.Record{}
	if err := json.Unmarshal(data, read); err != nil {
		t.Fatal(err)
	}
	return read
}
