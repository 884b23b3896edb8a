// SPDX-License-Identifier: Apache-2.0

package delegate_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
	"github.com/patchbay-cni/patchbay/daemon/internal/backend/delegate"
)

// A sandbox from before the installation is detached by its plugins, with what the runtime stored of its ADD. The
// runtime of the test is libcni, which containerd uses.
func TestDetachUnknown(t *testing.T) {
	t.Parallel()
	const (
		list   = `{"cniVersion":"0.4.0","name":"flat","plugins":[{"type":"bridge"},{"type":"portmap","capabilities":{"portMappings":true}}]}`
		other  = `{"cniVersion":"0.4.0","name":"other","plugins":[{"type":"bridge"}]}`
		own    = `{"cniVersion":"1.0.0","name":"patchbay","plugins":[{"type":"patchbay"}]}`
		multus = `{"cniVersion":"0.4.0","name":"multus","plugins":[{"type":"multus-shim"}]}`
		result = `echo '{"cniVersion":"0.4.0","ips":[{"version":"4","address":"10.1.2.3/24"}]}'`
	)
	cases := map[string]struct {
		reason, config string
		// meanwhile happens between ADD and DEL.
		meanwhile func(b *bench, cache string)
		container string
		want      []string
		err       string
		// left is how many files stay in the runtime's cache.
		left int
		// named is the file that the daemon's flag names.
		named string
	}{
		"Before":      {reason: "The runtime now sends DEL to Patchbay.", config: list, container: "old", want: []string{"DEL portmap", "DEL bridge"}},
		"Other":       {reason: "The runtime knows nothing of this sandbox.", config: list, container: "older", left: 1},
		"Own":         {reason: "The journal has been lost, and the plugin would wait for its own answer.", config: own, container: "old", left: 1},
		"Uninstalled": {reason: "Nothing can run its DEL any more.", config: list, container: "old", want: []string{"DEL bridge"}, meanwhile: func(b *bench, _ string) { b.remove(filepath.Join(b.bin, "portmap")) }},
		"Fails":       {reason: "The runtime repeats DEL.", config: list, container: "old", want: []string{"DEL portmap", "DEL bridge"}, err: "flat-old-eth0", left: 1, meanwhile: func(b *bench, _ string) { b.plugin("portmap", "exit 1") }},
		"Empty": {
			reason: "The node lost power. The runtime itself would run DEL without the result.", config: list, container: "old",
			want: []string{"DEL portmap", "DEL bridge"}, meanwhile: func(b *bench, cache string) {
				b.write(filepath.Join(cache, "flat-old-eth0"), "", 0o600)
				b.config("10-flat.conflist", list)
			},
		},
		"EmptyNamed": {
			reason: "The runtime did not know the flag of Patchbay.", config: list, container: "old", named: "20-other.conflist",
			want: []string{"DEL portmap", "DEL bridge"}, meanwhile: func(b *bench, cache string) {
				b.write(filepath.Join(cache, "flat-old-eth0"), "", 0o600)
				b.config("10-flat.conflist", list)
				b.config("20-other.conflist", other)
			},
		},
		"EmptyOther": {
			reason: "The node has the configuration of another network by now. An error would keep the Pod for ever.", config: list, container: "old", left: 1,
			meanwhile: func(b *bench, cache string) {
				b.write(filepath.Join(cache, "flat-old-eth0"), "", 0o600)
				b.config("10-other.conflist", other)
			},
		},
		"NoResult": {
			reason: "DEL works without the result.", config: list, container: "old", want: []string{"DEL portmap", "DEL bridge"},
			meanwhile: func(b *bench, cache string) { b.damageResult(filepath.Join(cache, "flat-old-eth0")) },
		},
		"Multus":      {reason: "Patchbay has replaced Multus.", config: multus, container: "old", want: []string{"DEL multus-shim"}, meanwhile: func(b *bench, _ string) { b.config(ownFile, own) }},
		"MultusFirst": {reason: "Multus has called Patchbay, and would do so again.", config: multus, container: "old", left: 1, meanwhile: func(b *bench, _ string) { b.config("00-multus.conflist", multus) }},
		"NoCache":     {reason: "The runtime stores nothing.", config: list, container: "old", meanwhile: func(b *bench, cache string) { b.remove(cache) }},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, delegate.Options{})
			for _, plugin := range []string{"bridge", "portmap", "patchbay", "multus-shim"} {
				b.plugin(plugin, result)
			}
			cache := t.TempDir()
			b.addByRuntime(tc.config, cache)
			b.clearLog()
			results := filepath.Join(cache, "results")
			if tc.meanwhile != nil {
				tc.meanwhile(b, results)
			}
			d := delegate.New(delegate.Options{RuntimeCache: results, Node: delegate.NodeConfigurations{Dir: b.conf, Own: ownFile, Named: tc.named}})
			req := &attach.Request{ContainerID: tc.container, IfName: "eth0", Netns: "/run/netns/a", Path: b.bin}
			err := d.DetachUnknown(t.Context(), req)
			if (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
				t.Fatalf("%s: got error %v, want one with %q", tc.reason, err, tc.err)
			}
			var got []string
			for _, run := range b.runs() {
				got = append(got, strings.Join(strings.Fields(run)[:2], " "))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s: executions: -want +got:\n%s", tc.reason, diff)
			}
			if left, _ := filepath.Glob(filepath.Join(results, "*")); len(left) != tc.left {
				t.Errorf("%s: the runtime's cache has %v, want %d files", tc.reason, left, tc.left)
			}
			if err := d.DetachUnknown(t.Context(), req); err != nil && tc.err == "" {
				t.Errorf("%s: repeated: %v", tc.reason, err)
			}
		})
	}
}

// The plugins get the result, the arguments and the host ports of the ADD.
func TestDetachUnknownInput(t *testing.T) {
	t.Parallel()
	b := newBench(t, delegate.Options{})
	b.plugin("portmap", `echo '{"cniVersion":"0.4.0","ips":[{"version":"4","address":"10.1.2.3/24"}]}'`)
	cache := t.TempDir()
	b.addByRuntime(`{"cniVersion":"0.4.0","name":"flat","plugins":[{"type":"portmap","capabilities":{"portMappings":true}}]}`, cache)
	b.clearLog()
	d := delegate.New(delegate.Options{RuntimeCache: filepath.Join(cache, "results")})
	if err := d.DetachUnknown(t.Context(), &attach.Request{ContainerID: "old", IfName: "eth0", Path: b.bin}); err != nil {
		t.Fatal(err)
	}
	want := []map[string]any{{
		"cniVersion": "0.4.0", "name": "flat", "type": "portmap", "capabilities": map[string]any{"portMappings": true},
		"runtimeConfig": map[string]any{"portMappings": []any{map[string]any{"hostPort": float64(80)}}},
		"prevResult": map[string]any{
			"cniVersion": "0.4.0", "dns": map[string]any{}, "ips": []any{map[string]any{"version": "4", "address": "10.1.2.3/24"}},
		},
	}}
	if diff := cmp.Diff(want, b.inputs()); diff != "" {
		t.Errorf("input: -want +got:\n%s", diff)
	}
	if runs := b.runs(); len(runs) != 1 || !strings.Contains(runs[0], "K8S_POD_NAMESPACE=ns;K8S_POD_NAME=web") {
		t.Errorf("got executions %v, want one with the Pod's name", runs)
	}
}

// addByRuntime runs ADD as a container runtime does that calls the plugins itself.
func (b *bench) addByRuntime(config, cache string) {
	b.t.Helper()
	list, err := libcni.NetworkConfFromBytes([]byte(config))
	if err != nil {
		b.t.Fatal(err)
	}
	runtime := libcni.NewCNIConfigWithCacheDir([]string{b.bin}, cache, nil)
	_, err = runtime.AddNetworkList(context.Background(), list, &libcni.RuntimeConf{
		ContainerID: "old", NetNS: "/run/netns/a", IfName: "eth0", Args: [][2]string{{"K8S_POD_NAMESPACE", "ns"}, {"K8S_POD_NAME", "web"}},
		CapabilityArgs: map[string]any{"portMappings": []any{map[string]any{"hostPort": 80}}},
	})
	if err != nil {
		b.t.Fatal(err)
	}
}

// damageResult replaces the result in a file of the runtime's cache.
func (b *bench) damageResult(path string) {
	b.t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		b.t.Fatal(err)
	}
	var cached map[string]any
	if err := json.Unmarshal(data, &cached); err != nil {
		b.t.Fatal(err)
	}
	cached["result"] = map[string]any{"cniVersion": "9.9.9"}
	if data, err = json.Marshal(cached); err != nil {
		b.t.Fatal(err)
	}
	b.write(path, string(data), 0o600)
}

func (b *bench) remove(path string) {
	b.t.Helper()
	if err := os.RemoveAll(path); err != nil {
		b.t.Fatal(err)
	}
}

// clearLog forgets the executions so far.
func (b *bench) clearLog() {
	b.t.Helper()
	b.remove(b.log)
	if err := os.Mkdir(b.log, 0o755); err != nil {
		b.t.Fatal(err)
	}
}
