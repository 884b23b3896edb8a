// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-cni/patchbay/cni/config"
	"github.com/patchbay-cni/patchbay/cni/wire"
)

// code returns the CNI code of an error, 0 for none.
func code(t *testing.T, err error) uint {
	t.Helper()
	if err == nil {
		return 0
	}
	var e *wire.Error
	if !errors.As(err, &e) {
		t.Fatalf("error without a CNI code: %v", err)
	}
	return e.Code
}

// with returns a valid configuration with some keys replaced; nil removes one.
func with(t *testing.T, keys map[string]any) []byte {
	t.Helper()
	c := map[string]any{"cniVersion": "1.1.0", "name": "patchbay", "type": "patchbay"}
	for k, v := range keys {
		if v == nil {
			delete(c, k)
			continue
		}
		c[k] = v
	}
	doc, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

func TestParse(t *testing.T) {
	t.Parallel()
	base := config.Config{
		CNIDir: "/etc/cni/net.d", Socket: "/run/patchbay/patchbay.sock",
		CNIVersion: "1.1.0", Name: "patchbay", Type: "patchbay",
	}
	cases := map[string]struct {
		reason string
		keys   map[string]any
		want   func(*config.Config)
	}{
		"Minimal": {"Three keys are required, the rest has defaults.", nil, func(*config.Config) {}},
		"Patchbay": {
			"Each key of Patchbay is read.",
			map[string]any{"namingScheme": "legacy", "cniDir": "/etc/cni/static", "socket": "/run/x.sock"},
			func(c *config.Config) {
				c.NamingScheme, c.CNIDir, c.Socket = "legacy", "/etc/cni/static", "/run/x.sock"
			},
		},
		"Empty": {
			"An empty string is the default.",
			map[string]any{"namingScheme": "", "cniDir": "", "socket": ""}, func(*config.Config) {},
		},
		"Standard": {
			"Keys of the specification and of libcni are accepted.",
			map[string]any{
				"capabilities": map[string]bool{"mac": true}, "args": 1, "ipMasq": true, "disableCheck": true,
				"disableGC": true, "ipam": struct{}{}, "cni.dev/attachments": 1, "cni.dev/later": 1,
			},
			func(c *config.Config) {
				c.Capabilities, c.Args, c.IPMasq = json.RawMessage(`{"mac":true}`), json.RawMessage("1"), json.RawMessage("true")
				c.DisableCheck, c.DisableGC = json.RawMessage("true"), json.RawMessage("true")
				c.IPAM = json.RawMessage("{}")
			},
		},
		"GC": {
			"GC has the attachments to keep.",
			map[string]any{"cni.dev/valid-attachments": []any{map[string]any{"containerID": "c", "ifname": "eth0"}}},
			func(c *config.Config) {
				c.ValidAttachments = []config.Attachment{{ContainerID: "c", IfName: "eth0"}}
			},
		},
	}
	for _, v := range config.SupportedVersions() {
		cases["Version"+v] = struct {
			reason string
			keys   map[string]any
			want   func(*config.Config)
		}{"Every supported version is accepted.", map[string]any{"cniVersion": v}, func(c *config.Config) { c.CNIVersion = v }}
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want := base
			tc.want(&want)
			got, err := config.ParseConfig(with(t, tc.keys))
			if err != nil {
				t.Fatalf("%s got %v", tc.reason, err)
			}
			if diff := cmp.Diff(&want, got); diff != "" {
				t.Errorf("%s -want +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		keys   map[string]any
		code   uint
		// contains are parts of the message.
		contains []string
	}{
		"OldVersion":  {"Version 0.2.0 has another result format.", map[string]any{"cniVersion": "0.2.0"}, wire.CodeVersion, []string{"cniVersion", `"0.2.0"`, "0.3.1"}},
		"NewVersion":  {"The version does not exist yet.", map[string]any{"cniVersion": "2.0.0"}, wire.CodeVersion, []string{`"2.0.0"`}},
		"NoVersion":   {"By the specification it is 0.1.0.", map[string]any{"cniVersion": nil}, wire.CodeVersion, []string{"cniVersion must be set"}},
		"BadName":     {"The name becomes part of records.", map[string]any{"name": "../x"}, wire.CodeConfig, []string{"name", `"../x"`}},
		"NoName":      {"The specification requires a name.", map[string]any{"name": nil}, wire.CodeConfig, []string{"name", `""`}},
		"OtherType":   {"The configuration is another plugin's.", map[string]any{"type": "bridge"}, wire.CodeConfig, []string{"type", `"bridge"`, `"patchbay"`}},
		"Naming":      {"The scheme does not exist.", map[string]any{"namingScheme": "old"}, wire.CodeConfig, []string{"namingScheme", `"old"`, `"legacy"`}},
		"RelativeDir": {"The daemon has another working directory.", map[string]any{"cniDir": "net.d"}, wire.CodeConfig, []string{"cniDir", `"net.d"`}},
		"DotDot":      {"A path must be clean.", map[string]any{"cniDir": "/etc/../x"}, wire.CodeConfig, []string{"cniDir", `"/etc/../x"`}},
		"Nul":         {"The kernel would truncate the path.", map[string]any{"socket": "/run/a\x00b"}, wire.CodeConfig, []string{"socket"}},
		"LongSocket":  {"By unix(7), a path has at most 108 bytes with the final zero.", map[string]any{"socket": "/" + strings.Repeat("s", 107)}, wire.CodeConfig, []string{"socket", "108 bytes", "107"}},
		"Unknown":     {"The key has a typo.", map[string]any{"nameingScheme": "legacy"}, wire.CodeField, []string{`"nameingScheme"`, `"legacy"`, "namingScheme"}},
		"Case":        {"Keys are case-sensitive, in contrast to encoding/json.", map[string]any{"cnidir": "/x"}, wire.CodeField, []string{`"cnidir"`}},
		"WrongType":   {"The value has another type.", map[string]any{"cniDir": 5}, wire.CodeConfig, []string{"cniDir", "number", "string"}},
		"LongValue":   {"Messages must stay short.", map[string]any{"x": strings.Repeat("é", 1000)}, wire.CodeField, []string{`"x"`, "…"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := config.ParseConfig(with(t, tc.keys))
			if got := code(t, err); got != tc.code {
				t.Fatalf("%s got code %d (%v), want %d", tc.reason, got, err, tc.code)
			}
			for _, part := range tc.contains {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%s message %q does not contain %q", tc.reason, err, part)
				}
			}
		})
	}
}

func TestParseNoObject(t *testing.T) {
	t.Parallel()
	for _, in := range []string{"", "{", "null", "[]", `"x"`, "{}{}", "{} x", "\x00"} {
		_, err := config.ParseConfig([]byte(in))
		if got := code(t, err); got != wire.CodeDecode {
			t.Errorf("Parse(%q): got code %d (%v), want %d", in, got, err, wire.CodeDecode)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"cniVersion":"1.1.0","name":"n","type":"patchbay","socket":"/run/x"}`))
	f.Add([]byte(`{"cni.dev/valid-attachments":[{"containerID":1}]}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		c, err := config.ParseConfig(in)
		if code(t, err) == 0 && (c.Name == "" || strings.Contains(c.CNIDir, "..") && !strings.HasPrefix(c.CNIDir, "/")) {
			t.Errorf("Parse(%q) accepted %+v", in, c)
		}
	})
}
