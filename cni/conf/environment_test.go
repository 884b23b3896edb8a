// SPDX-License-Identifier: Apache-2.0

package conf_test

import (
	"strings"
	"testing"

	"github.com/patchbay-cni/patchbay/cni/conf"
	"github.com/patchbay-cni/patchbay/cni/wire"
)

// request is a good one of that command.
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
		"Add":        {"everything is there", "ADD", func(*wire.Request) {}},
		"AddProc":    {"podman names namespaces by process", "ADD", func(r *wire.Request) { r.Netns = "/proc/12/ns/net" }},
		"DelAlone":   {"the specification asks for these two only", "DEL", func(r *wire.Request) { r.Netns, r.Args, r.Path = "", "", "" }},
		"DelArgs":    {"DEL works from records, not from arguments", "DEL", func(r *wire.Request) { r.Args, r.Netns = "???", "../x" }},
		"Status":     {"it is about no container", "STATUS", func(r *wire.Request) { *r = wire.Request{Command: "STATUS"} }},
		"GC":         {"it is about all containers", "GC", func(r *wire.Request) { *r = wire.Request{Command: "GC"} }},
		"LongestIf":  {"15 bytes fit", "ADD", func(r *wire.Request) { r.IfName = strings.Repeat("e", 15) }},
		"OddIf":      {"the kernel takes it", "ADD", func(r *wire.Request) { r.IfName = "v-1.2@x" }},
		"DotsInside": {"a..b is no way out of a folder", "ADD", func(r *wire.Request) { r.ContainerID = "a..b" }},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := conf.ValidateRequest(request(tc.command, tc.change)); err != nil {
				t.Errorf("%s: %v", tc.reason, err)
			}
		})
	}
}

func TestCheckRefuses(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason, command string
		change          func(*wire.Request)
		says            []string
	}{
		"Command":     {"not a command", "PING", func(*wire.Request) {}, []string{"CNI_COMMAND", `"PING"`}},
		"Lower":       {"commands are in capitals", "add", func(*wire.Request) {}, []string{`"add"`}},
		"NoContainer": {"required", "DEL", func(r *wire.Request) { r.ContainerID = "" }, []string{"CNI_CONTAINERID is missing", "DEL"}},
		"DotDot":      {"no way out of a folder", "ADD", func(r *wire.Request) { r.ContainerID = "../../etc" }, []string{"CNI_CONTAINERID", `"../../etc"`}},
		"DotDotDel":   {"nor on DEL", "DEL", func(r *wire.Request) { r.ContainerID = "a/../b" }, []string{"CNI_CONTAINERID", `"a/../b"`}},
		"LongID":      {"it is a key in the journal", "ADD", func(r *wire.Request) { r.ContainerID = strings.Repeat("a", 254) }, []string{"CNI_CONTAINERID", "253", "…"}},
		"NoIf":        {"required", "DEL", func(r *wire.Request) { r.IfName = "" }, []string{"CNI_IFNAME is missing"}},
		"LongIf":      {"IFNAMSIZ", "ADD", func(r *wire.Request) { r.IfName = "sixteen-letters1" }, []string{"CNI_IFNAME", `"sixteen-letters1"`, "16 bytes", "15"}},
		"SlashIf":     {"a path in sysfs", "ADD", func(r *wire.Request) { r.IfName = "../eth0" }, []string{"CNI_IFNAME", `"../eth0"`}},
		"DotsIf":      {"a path in sysfs", "ADD", func(r *wire.Request) { r.IfName = ".." }, []string{"CNI_IFNAME", `".."`}},
		"SpaceIf":     {"the kernel refuses white space", "ADD", func(r *wire.Request) { r.IfName = "eth 0" }, []string{"CNI_IFNAME", `"eth 0"`}},
		"ColonIf":     {"the kernel refuses colons", "ADD", func(r *wire.Request) { r.IfName = "eth0:1" }, []string{`"eth0:1"`}},
		"BytesIf":     {"no terminal shows it", "ADD", func(r *wire.Request) { r.IfName = "e\x7f" }, []string{"CNI_IFNAME"}},
		"NoNetns":     {"required on ADD", "ADD", func(r *wire.Request) { r.Netns = "" }, []string{"CNI_NETNS is missing", "ADD"}},
		"Relative":    {"relative to what?", "CHECK", func(r *wire.Request) { r.Netns = "netns/x" }, []string{"CNI_NETNS", `"netns/x"`}},
		"DotDotNetns": {"a path must say where it leads", "ADD", func(r *wire.Request) { r.Netns = "/run/netns/../../etc" }, []string{"CNI_NETNS", `"/run/netns/../../etc"`}},
		"LongNetns":   {"PATH_MAX", "ADD", func(r *wire.Request) { r.Netns = "/" + strings.Repeat("n", 4096) }, []string{"CNI_NETNS", "…"}},
		"Args":        {"ADD needs the Pod", "ADD", func(r *wire.Request) { r.Args = "K8S_POD_NAME=../x" }, []string{"CNI_ARGS", `"../x"`}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := conf.ValidateRequest(request(tc.command, tc.change))
			if got := code(t, err); got != wire.CodeEnv {
				t.Fatalf("%s: got code %d (%v), want %d", tc.reason, got, err, wire.CodeEnv)
			}
			for _, part := range tc.says {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%s: message %q does not say %q", tc.reason, err, part)
				}
			}
		})
	}
}

// Each command of the specification, and the first version that has it.
func TestKnows(t *testing.T) {
	t.Parallel()
	since := map[string]int{"ADD": 0, "DEL": 0, "VERSION": 0, "CHECK": 1, "GC": 3, "STATUS": 3}
	for command, first := range since {
		for i, v := range conf.SupportedVersions() {
			if got, want := conf.HasCommand(v, command), i >= first; got != want {
				t.Errorf("Knows(%s, %s): got %v, want %v", v, command, got, want)
			}
		}
	}
}
