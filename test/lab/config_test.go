// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-cni/patchbay/test/lab/fabric"
	"github.com/patchbay-cni/patchbay/test/lab/process"
)

func TestLabNames(t *testing.T) {
	t.Parallel()
	for name, good := range map[string]bool{
		"": true, "demo": true, "t-0a1b": true, "x": true, strings.Repeat("a", 24): true,
		strings.Repeat("a", 25): false, "-x": false, "x-": false, "Demo": false, "../x": false, "a/b": false, "a b": false,
	} {
		if _, err := (Config{Name: name}).named(); (err == nil) != good {
			t.Errorf("name %q: got %v, want good: %t", name, err, good)
		}
	}
}

func TestNodeNames(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]fabric.Port{
		"node-1": 1, "node-200": 200,
		"node-0": 0, "node-201": 0, "node-01": 0, "node--1": 0, "node-": 0, "1": 0, "../node-1": 0, "": 0,
	} {
		got, err := port(name)
		if got != want || (err == nil) != (want != 0) {
			t.Errorf("port(%q): got %d, %v; want %d", name, got, err, want)
		}
	}
}

func TestAddFreeNames(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		have   []string
		n      int
		want   []string
	}{
		"New":  {reason: "Names count from one.", n: 2, want: []string{"node-1", "node-2"}},
		"Gap":  {reason: "A node that was added by name is not made twice.", have: []string{"node-1", "node-3"}, n: 3, want: []string{"node-1", "node-3", "node-2"}},
		"More": {reason: "No node is taken away.", have: []string{"node-1", "node-2", "node-3"}, n: 2, want: []string{"node-1", "node-2", "node-3"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tc.want, addFreeNames(tc.have, tc.n)); diff != "" {
				t.Errorf("%s\n%s", tc.reason, diff)
			}
		})
	}
}

// Before a node is made, the configuration decides about its type.
func TestWantedType(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		config Config
		want   NodeType
	}{
		"Default":  {reason: "A node is of the default type unless the configuration says otherwise.", want: NodeType{KindUML, RuntimeContainerd}},
		"Kind":     {reason: "The configuration names the nodes in QEMU.", config: Config{QEMU: []string{"node-2"}}, want: NodeType{KindQEMU, RuntimeContainerd}},
		"Other":    {reason: "Another node in QEMU does not matter.", config: Config{QEMU: []string{"node-1"}}, want: NodeType{KindUML, RuntimeContainerd}},
		"Runtimes": {reason: "The runtime is that of all nodes.", config: Config{QEMU: []string{"node-2"}, Runtime: RuntimeContainerd2}, want: NodeType{KindQEMU, RuntimeContainerd2}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tc.config.Name = "no-such-lab"
			if got, err := tc.config.wantedType("node-2"); err != nil || got != tc.want {
				t.Errorf("%s\nwantedType: got %v, %v; want %v", tc.reason, got, err, tc.want)
			}
		})
	}
}

// A node keeps the type that it was made with.
func TestStoreType(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "nodes", "node-1")
	made := NodeType{KindQEMU, RuntimeContainerd2}
	for range 2 { // a lab may be completed
		if err := storeType(dir, made); err != nil {
			t.Fatal(err)
		}
	}
	for other, want := range map[NodeType]string{
		{KindUML, RuntimeContainerd2}: "make node-1 as uml: wrong kind of node: it is there as qemu,",
		{KindQEMU, RuntimeContainerd}: "make node-1 with containerd: wrong container runtime of node: it is there with containerd-2,",
	} {
		if err := storeType(dir, other); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("make a node again as %v: got %v, want %s", other, err, want)
		}
	}
	if got, err := readType(dir); err != nil || got != made {
		t.Errorf("readType: got %v, %v; want %v", got, err, made)
	}
}

// The error about a wrong type names all that there are.
func TestWrongType(t *testing.T) {
	t.Parallel()
	if _, err := Kind("kvm").findKernel("/bin"); !errors.Is(err, ErrKind) || !strings.Contains(err.Error(), "uml or qemu") {
		t.Errorf("find kernel of an unknown kind: got %v, want ErrKind", err)
	}
	if _, err := Runtime("cri-o").findContainerd2("/bin"); !errors.Is(err, ErrRuntime) || !strings.Contains(err.Error(), "containerd or containerd-2") {
		t.Errorf("find an unknown runtime: got %v, want ErrRuntime", err)
	}
	if _, err := RuntimeContainerd2.findContainerd2(t.TempDir()); err == nil || !strings.Contains(err.Error(), "make containerd-2") {
		t.Errorf("find containerd 2, which was not built: got %v, want the command that builds it", err)
	}
}

func TestOpenNoLab(t *testing.T) {
	t.Parallel()
	if _, err := Open("no-such-lab"); !errors.Is(err, ErrNotFound) {
		t.Errorf("Open: got %v, want ErrNone", err)
	}
}

func TestMentionedIn(t *testing.T) {
	t.Parallel()
	c := Config{Name: "x"}
	for words, want := range map[string]bool{
		"etcd --data-dir /run/patchbay-lab/x/controlplane": true,
		"linux.uml ubd0 /var/tmp/patchbay-lab/x/node-1":    true,
		"kube-apiserver unix:///run/patchbay-lab/x/etcd":   true,
		"etcd --data-dir /run/patchbay-lab/xy":             false,
		"etcd --data-dir /srv/run/patchbay-lab/x":          false,
	} {
		if got := c.mentionedIn(strings.Fields(words)); got != want {
			t.Errorf("%s: got %t", words, got)
		}
	}
}

func TestProgress(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	p := newProgress(&out)
	p.begin = time.Now().Add(-90 * time.Second)
	broken := errors.New("broken")
	if err := p.step("first", func() error { return nil }); err != nil {
		t.Errorf("step: %v", err)
	}
	if err := p.step("second", func() error { return broken }); !errors.Is(err, broken) {
		t.Errorf("step: got %v, want the error of what it did", err)
	}
	want := "[ 90.0s] first …\n[ 90.0s] first: done in 0.0s\n[ 90.0s] second …\n[ 90.0s] second: failed\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}
}

func TestCheckBinNamesWhatIsMissing(t *testing.T) {
	t.Parallel()
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, program), nil, 0o755); err != nil {
		t.Fatal(err)
	}
	_, err := Config{Bin: bin}.withDefaults()
	if !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "kubelet") {
		t.Errorf("withDefaults: got %v, want one that names kubelet", err)
	}
}

func TestCheckMemory(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		config Config
		want   string
	}{
		"Enough": {reason: "One MiB is there.", config: Config{Nodes: 1, Memory: 1}},
		"Full":   {reason: "No machine has as much.", config: Config{Nodes: 2, Memory: 1 << 30}, want: "2 nodes of 1073741824 MiB"},
		"QEMU":   {reason: "The memory of a node in QEMU is not in this file system.", config: Config{Nodes: 2, QEMU: []string{"node-1", "node-2"}, Memory: 1 << 30}},
		"Both":   {reason: "Only the node of User-Mode Linux counts.", config: Config{Nodes: 2, QEMU: []string{"node-2"}, Memory: 1 << 30}, want: "1 nodes of 1073741824 MiB"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tc.config.Name = "no-such-lab"
			err := tc.config.checkMemory(t.TempDir())
			if tc.want == "" && err != nil {
				t.Errorf("%s\ncheckMemory: %v", tc.reason, err)
			}
			if tc.want != "" && (!errors.Is(err, ErrMachine) || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("%s\ncheckMemory: got %v, want ErrMachine with %q", tc.reason, err, tc.want)
			}
		})
	}
}

func TestOrphaned(t *testing.T) {
	t.Parallel()
	me, err := process.Of(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	gone := process.ID{PID: me.PID, Start: me.Start - 1}
	cases := map[string]struct {
		reason string
		state  any
		want   bool
	}{
		"Mine":    {reason: "The owner lives.", state: Config{Owner: me}},
		"Gone":    {reason: "Another process has the owner's number now.", state: Config{Owner: gone}, want: true},
		"NoOwner": {reason: "A lab that a person started stays.", state: Config{}},
		"Broken":  {reason: "What nobody understands stays.", state: "x"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			raw, err := json.Marshal(tc.state)
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(t.TempDir(), stateFile)
			if err := os.WriteFile(file, raw, 0o600); err != nil {
				t.Fatal(err)
			}
			if got := isOrphaned(file); got != tc.want {
				t.Errorf("%s: got %t", tc.reason, got)
			}
		})
	}
	if isOrphaned(filepath.Join(t.TempDir(), stateFile)) {
		t.Error("a lab that is not there has no owner")
	}
}
