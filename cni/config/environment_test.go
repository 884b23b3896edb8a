// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"strings"
	"testing"

	"github.com/patchbay-cni/patchbay/cni/config"
	"github.com/patchbay-cni/patchbay/cni/wire"
)

// request returns a valid request of the command, with a change.
func request(command string, change func(*wire.Request)) *wire.Request {
	req := &wire.Request{
		Command: command, ContainerID: "4f5a", Netns: "/var/run/netns/cni-1", IfName: "eth0",
		Args: "IgnoreUnknown=1;K8S_POD_NAME=p", Path: "/opt/cni/bin",
	}
	change(req)
	return req
}

func TestCheck(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason, command string
		change          func(*wire.Request)
	}{
		"Add":        {"All variables are set.", "ADD", func(*wire.Request) {}},
		"AddProc":    {"Podman uses the namespace of a process.", "ADD", func(r *wire.Request) { r.Netns = "/proc/12/ns/net" }},
		"DelMinimal": {"The specification requires two variables only.", "DEL", func(r *wire.Request) { r.Netns, r.Args, r.Path = "", "", "" }},
		"DelArgs":    {"DEL does not use the arguments.", "DEL", func(r *wire.Request) { r.Args, r.Netns = "???", "../x" }},
		"Status":     {"STATUS has no container.", "STATUS", func(r *wire.Request) { *r = wire.Request{Command: "STATUS"} }},
		"GC":         {"GC has no single container.", "GC", func(r *wire.Request) { *r = wire.Request{Command: "GC"} }},
		"LongestIf":  {"A name may have 15 bytes.", "ADD", func(r *wire.Request) { r.IfName = strings.Repeat("e", 15) }},
		"UnusualIf":  {"The kernel accepts the name.", "ADD", func(r *wire.Request) { r.IfName = "v-1.2@x" }},
		"DotsInside": {"The name a..b does not lead out of a directory.", "ADD", func(r *wire.Request) { r.ContainerID = "a..b" }},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := config.ValidateRequest(request(tc.command, tc.change)); err != nil {
				t.Errorf("%s got %v", tc.reason, err)
			}
		})
	}
}

func TestCheckRefuses(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason, command string
		change          func(*wire.Request)
		contains        []string
	}{
		"Command":     {"The command does not exist.", "PING", func(*wire.Request) {}, []string{"CNI_COMMAND", `"PING"`}},
		"Lower":       {"Commands are case-sensitive.", "add", func(*wire.Request) {}, []string{`"add"`}},
		"NoContainer": {"DEL requires the container.", "DEL", func(r *wire.Request) { r.ContainerID = "" }, []string{"CNI_CONTAINERID must be set", "DEL"}},
		"DotDot":      {"An ID must not lead out of a directory.", "ADD", func(r *wire.Request) { r.ContainerID = "../../etc" }, []string{"CNI_CONTAINERID", `"../../etc"`}},
		"DotDotDel":   {"The rule applies to DEL, too.", "DEL", func(r *wire.Request) { r.ContainerID = "a/../b" }, []string{"CNI_CONTAINERID", `"a/../b"`}},
		"LongID":      {"The ID is a key in the journal.", "ADD", func(r *wire.Request) { r.ContainerID = strings.Repeat("a", 254) }, []string{"CNI_CONTAINERID", "253", "…"}},
		"NoIf":        {"DEL requires the interface.", "DEL", func(r *wire.Request) { r.IfName = "" }, []string{"CNI_IFNAME must be set"}},
		"LongIf":      {"IFNAMSIZ bounds the name.", "ADD", func(r *wire.Request) { r.IfName = "sixteen-letters1" }, []string{"CNI_IFNAME", `"sixteen-letters1"`, "16 bytes", "15"}},
		"SlashIf":     {"The name becomes part of a path in sysfs.", "ADD", func(r *wire.Request) { r.IfName = "../eth0" }, []string{"CNI_IFNAME", `"../eth0"`}},
		"DotsIf":      {"The name becomes part of a path in sysfs.", "ADD", func(r *wire.Request) { r.IfName = ".." }, []string{"CNI_IFNAME", `".."`}},
		"SpaceIf":     {"The kernel rejects white space.", "ADD", func(r *wire.Request) { r.IfName = "eth 0" }, []string{"CNI_IFNAME", `"eth 0"`}},
		"ColonIf":     {"The kernel rejects colons.", "ADD", func(r *wire.Request) { r.IfName = "eth0:1" }, []string{`"eth0:1"`}},
		"BytesIf":     {"The character is not printable.", "ADD", func(r *wire.Request) { r.IfName = "e\x7f" }, []string{"CNI_IFNAME"}},
		"NoNetns":     {"ADD requires the namespace.", "ADD", func(r *wire.Request) { r.Netns = "" }, []string{"CNI_NETNS must be set", "ADD"}},
		"Relative":    {"A path must be absolute.", "CHECK", func(r *wire.Request) { r.Netns = "netns/x" }, []string{"CNI_NETNS", `"netns/x"`}},
		"DotDotNetns": {"A path must be clean.", "ADD", func(r *wire.Request) { r.Netns = "/run/netns/../../etc" }, []string{"CNI_NETNS", `"/run/netns/../../etc"`}},
		"LongNetns":   {"PATH_MAX bounds the path.", "ADD", func(r *wire.Request) { r.Netns = "/" + strings.Repeat("n", 4096) }, []string{"CNI_NETNS", "…"}},
		"Args":        {"ADD requires valid arguments.", "ADD", func(r *wire.Request) { r.Args = "K8S_POD_NAME=../x" }, []string{"CNI_ARGS", `"../x"`}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := config.ValidateRequest(request(tc.command, tc.change))
			if got := code(t, err); got != wire.CodeEnv {
				t.Fatalf("%s got code %d (%v), want %d", tc.reason, got, err, wire.CodeEnv)
			}
			for _, part := range tc.contains {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%s message %q does not contain %q", tc.reason, err, part)
				}
			}
		})
	}
}

// HasCommand returns true from the version on that added the command.
func TestHasCommand(t *testing.T) {
	t.Parallel()
	since := map[string]int{"ADD": 0, "DEL": 0, "VERSION": 0, "CHECK": 1, "GC": 3, "STATUS": 3}
	for command, first := range since {
		for i, v := range config.SupportedVersions() {
			if got, want := config.HasCommand(v, command), i >= first; got != want {
				t.Errorf("HasCommand(%s, %s): got %v, want %v", v, command, got, want)
			}
		}
	}
}
