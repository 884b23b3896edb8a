// SPDX-License-Identifier: Apache-2.0

package delegate_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
	"github.com/patchbay-cni/patchbay/daemon/internal/backend/delegate"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// bench has the directories of a node, with shell scripts as plugins.
type bench struct {
	t *testing.T
	// conf is cniDir, bin is in CNI_PATH, log has the plugins' input.
	conf, bin, log string
	backend        *delegate.Delegate
}

func newBench(t *testing.T, o delegate.Options) *bench {
	t.Helper()
	b := &bench{t: t, conf: t.TempDir(), bin: t.TempDir(), log: t.TempDir(), backend: delegate.New(o)}
	return b
}

// recorder is the start of every script. It records each execution with its standard input and
// environment, and starts no processes, which are slow in a virtual machine.
const recorder = `#!/bin/sh
n=0
while [ -e LOG/$n.run ]; do n=$((n+1)); done
echo "$CNI_COMMAND ${0##*/} $CNI_CONTAINERID $CNI_IFNAME netns=$CNI_NETNS $CNI_ARGS" > LOG/$n.run
IFS= read -r in
printf '%s' "$in" > LOG/$n.in
export -p > LOG/$n.env
`

// plugin installs a plugin that runs the script after it has recorded its input.
func (b *bench) plugin(name, script string) {
	b.t.Helper()
	b.write(filepath.Join(b.bin, name), strings.ReplaceAll(recorder, "LOG", b.log)+script, 0o755)
}

// config writes a file into cniDir.
func (b *bench) config(name, content string) {
	b.t.Helper()
	b.write(filepath.Join(b.conf, name), content, 0o644)
}

func (b *bench) write(path, content string, mode os.FileMode) {
	b.t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		b.t.Fatal(err)
	}
}

// runs are the executions so far, one line each.
func (b *bench) runs() []string {
	b.t.Helper()
	return b.recorded("run")
}

// inputs are the standard inputs of the executions.
func (b *bench) inputs() []map[string]any {
	b.t.Helper()
	var all []map[string]any
	for _, text := range b.recorded("in") {
		var v map[string]any
		if err := json.Unmarshal([]byte(text), &v); err != nil {
			b.t.Fatalf("input %q: %v", text, err)
		}
		all = append(all, v)
	}
	return all
}

func (b *bench) recorded(what string) []string {
	b.t.Helper()
	files, err := filepath.Glob(filepath.Join(b.log, "*."+what))
	if err != nil {
		b.t.Fatal(err)
	}
	var all []string
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			b.t.Fatal(err)
		}
		all = append(all, strings.TrimSpace(string(data)))
	}
	return all
}

// sandbox is a record with one interface in network "flat" of the given type.
func (b *bench) sandbox(networkType string) (*attach.Record, *attach.Interface) {
	rec := &attach.Record{
		ContainerID: "sandbox", IfName: "eth0", Netns: "/run/netns/a", Path: "relative:/nowhere:" + b.bin,
		PodNamespace: "ns", PodName: "web", PodUID: "uid",
		Interfaces: []attach.Interface{{
			Name: "eth0", Network: network.Network{Ref: network.Ref{Kind: "ClusterNetwork", Name: "default"}, ID: "flat", Type: networkType},
		}},
	}
	return rec, &rec.Interfaces[0]
}

// prepare reads the configuration.
func (b *bench) prepare(ifc *attach.Interface) error {
	return b.backend.Prepare(context.Background(), &attach.Request{CNIDir: b.conf}, ifc)
}

// attached prepares and attaches, with a configuration of plugin bridge.
func (b *bench) attached() (*attach.Record, *attach.Interface) {
	b.t.Helper()
	rec, ifc := b.sandbox("bridge")
	if err := b.prepare(ifc); err != nil {
		b.t.Fatal(err)
	}
	if err := b.backend.Attach(context.Background(), rec, ifc); err != nil {
		b.t.Fatal(err)
	}
	return rec, ifc
}
