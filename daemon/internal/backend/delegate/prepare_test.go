// SPDX-License-Identifier: Apache-2.0

package delegate_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
	"github.com/patchbay-cni/patchbay/daemon/internal/backend/delegate"
)

const (
	single = `{"cniVersion":"1.0.0","name":"flat","type":"bridge","ipam":{"type":"host-local","big":9007199254740993}}`
	list   = `{"cniVersion":"1.0.0","name":"flat","plugins":[{"type":"bridge"},{"type":"portmap"}]}`
)

func TestPrepare(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		files  func(*bench)
		want   string
	}{
		"List": {"A list is journalled as it is in the file.", func(b *bench) { b.config("flat.conflist", list) }, list},
		"Single": {
			"A single configuration becomes a list, and numbers keep their digits.", func(b *bench) { b.config("flat.conf", single) },
			`{"cniVersion":"1.0.0","name":"flat","plugins":[` + single + `]}`,
		},
		"Unnamed": {
			"A single configuration without a name, such as DANM's, has that of the file.", func(b *bench) { b.config("flat.conf", `{"type":"bridge"}`) },
			`{"name":"flat","plugins":[{"type":"bridge"}]}`,
		},
		"LinkInside": {
			"Kubernetes mounts a ConfigMap with links.", func(b *bench) {
				b.config("data", list)
				b.link("data", "flat.conflist")
			}, list,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, delegate.Options{})
			tc.files(b)
			_, ifc := b.sandbox("bridge")
			if err := b.prepare(ifc); err != nil {
				t.Fatalf("%s got %v", tc.reason, err)
			}
			if diff := cmp.Diff(tc.want, string(ifc.DelegateConfig)); diff != "" {
				t.Errorf("%s -want +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func (b *bench) link(target, name string) {
	b.t.Helper()
	if err := os.Symlink(target, filepath.Join(b.conf, name)); err != nil {
		b.t.Fatal(err)
	}
}

func TestPrepareRefuses(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason   string
		files    func(*bench)
		change   func(*attach.Interface)
		contains []string
	}{
		"Missing": {reason: "The error names the files.", contains: []string{"/flat.conflist", "/flat.conf ", "missing"}},
		"Twice": {
			reason: "Neither file has precedence.", files: func(b *bench) { b.config("flat.conf", single); b.config("flat.conflist", list) },
			contains: []string{"twice", "/flat.conflist"},
		},
		"Path": {
			reason: "A name must not lead out of the directory.", change: func(i *attach.Interface) { i.Network.ID = "../flat" }, contains: []string{`"../flat"`},
		},
		"LinkOutside": {
			reason: "A link must not lead out of the directory.", files: func(b *bench) {
				b.write(filepath.Join(b.bin, "secret"), list, 0o600)
				b.link(filepath.Join(b.bin, "secret"), "flat.conflist")
			}, contains: []string{"flat.conflist", "escapes"},
		},
		"Pipe": {
			reason: "The open must not block.", files: func(b *bench) {
				if err := syscall.Mkfifo(filepath.Join(b.conf, "flat.conf"), 0o600); err != nil {
					b.t.Fatal(err)
				}
			}, contains: []string{"flat.conf"},
		},
		"Directory": {
			reason: "The name must be a file.", files: func(b *bench) { _ = os.Mkdir(filepath.Join(b.conf, "flat.conf"), 0o700) }, contains: []string{"flat.conf"},
		},
		"Large": {
			reason: "The configuration is journalled for each Pod.", files: func(b *bench) { b.config("flat.conf", single+strings.Repeat(" ", 64<<10)) },
			contains: []string{"65536"},
		},
		"NotJSON":   {reason: "The error names the file.", files: func(b *bench) { b.config("flat.conflist", "{") }, contains: []string{"flat", "parse"}},
		"NoName":    {reason: "CNI 1.1 (section 1) requires a name.", files: func(b *bench) { b.config("flat.conflist", `{"plugins":[{"type":"bridge"}]}`) }, contains: []string{"name"}},
		"BadName":   {reason: "Host-local uses the name as a directory.", files: func(b *bench) { b.config("flat.conf", `{"name":"../x","type":"bridge"}`) }, contains: []string{`"../x"`}},
		"NoPlugins": {reason: "A list needs a plugin.", files: func(b *bench) { b.config("flat.conflist", `{"name":"x"}`) }, contains: []string{"0 plugins"}},
		"PluginPath": {
			reason: "A plugin must be a file of CNI_PATH.", files: func(b *bench) { b.config("flat.conf", `{"name":"x","type":"../../bin/sh"}`) },
			contains: []string{`"../../bin/sh"`},
		},
		"OtherType": {
			reason: "NetworkType must name the plugin.", files: func(b *bench) { b.config("flat.conf", `{"name":"x","type":"ptp"}`) },
			contains: []string{`"ptp"`, `"bridge"`, "NetworkType"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, delegate.Options{})
			if tc.files != nil {
				tc.files(b)
			}
			_, ifc := b.sandbox("bridge")
			if tc.change != nil {
				tc.change(ifc)
			}
			err := b.prepare(ifc)
			if err == nil {
				t.Fatalf("%s accepted %s", tc.reason, ifc.DelegateConfig)
			}
			for _, part := range tc.contains {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%s %q does not contain %q", tc.reason, err, part)
				}
			}
		})
	}
}
