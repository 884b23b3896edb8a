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
		"List": {"as it is in the file", func(b *bench) { b.config("flat.conflist", list) }, list},
		"Single": {
			"one form in the journal, and numbers as they were", func(b *bench) { b.config("flat.conf", single) },
			`{"cniVersion":"1.0.0","name":"flat","plugins":[` + single + `]}`,
		},
		"LinkInside": {
			"how Kubernetes mounts a ConfigMap", func(b *bench) {
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
				t.Fatalf("%s: %v", tc.reason, err)
			}
			if diff := cmp.Diff(tc.want, string(ifc.DelegateConfig)); diff != "" {
				t.Errorf("%s: -want +got:\n%s", tc.reason, diff)
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
		reason string
		files  func(*bench)
		change func(*attach.Interface)
		says   []string
	}{
		"Missing": {reason: "says which file", says: []string{"/flat.conflist", "/flat.conf ", "missing"}},
		"Twice": {
			reason: "which one holds?", files: func(b *bench) { b.config("flat.conf", single); b.config("flat.conflist", list) },
			says: []string{"twice", "/flat.conflist"},
		},
		"Path": {
			reason: "no way out of the folder", change: func(i *attach.Interface) { i.Network.ID = "../flat" }, says: []string{`"../flat"`},
		},
		"LinkOutside": {
			reason: "no way out of the folder", files: func(b *bench) {
				b.write(filepath.Join(b.bin, "secret"), list, 0o600)
				b.link(filepath.Join(b.bin, "secret"), "flat.conflist")
			}, says: []string{"flat.conflist", "escapes"},
		},
		"Pipe": {
			reason: "must not hang", files: func(b *bench) {
				if err := syscall.Mkfifo(filepath.Join(b.conf, "flat.conf"), 0o600); err != nil {
					b.t.Fatal(err)
				}
			}, says: []string{"flat.conf"},
		},
		"Folder": {
			reason: "not a file", files: func(b *bench) { _ = os.Mkdir(filepath.Join(b.conf, "flat.conf"), 0o700) }, says: []string{"flat.conf"},
		},
		"Large": {
			reason: "it is journalled per Pod", files: func(b *bench) { b.config("flat.conf", single+strings.Repeat(" ", 64<<10)) },
			says: []string{"65536"},
		},
		"NotJSON":   {reason: "says where", files: func(b *bench) { b.config("flat.conflist", "{") }, says: []string{"flat", "parse"}},
		"NoName":    {reason: "CNI 1.1, section 1", files: func(b *bench) { b.config("flat.conf", `{"type":"bridge"}`) }, says: []string{"name"}},
		"BadName":   {reason: "host-local makes a folder of it", files: func(b *bench) { b.config("flat.conf", `{"name":"../x","type":"bridge"}`) }, says: []string{`"../x"`}},
		"NoPlugins": {reason: "nothing to run", files: func(b *bench) { b.config("flat.conflist", `{"name":"x"}`) }, says: []string{"0 plugins"}},
		"PluginPath": {
			reason: "only a file of CNI_PATH is run", files: func(b *bench) { b.config("flat.conf", `{"name":"x","type":"../../bin/sh"}`) },
			says: []string{`"../../bin/sh"`},
		},
		"OtherType": {
			reason: "NetworkType names the plugin", files: func(b *bench) { b.config("flat.conf", `{"name":"x","type":"ptp"}`) },
			says: []string{`"ptp"`, `"bridge"`, "NetworkType"},
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
				t.Fatalf("%s: accepted %s", tc.reason, ifc.DelegateConfig)
			}
			for _, part := range tc.says {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%s: %q does not say %q", tc.reason, err, part)
				}
			}
		})
	}
}
