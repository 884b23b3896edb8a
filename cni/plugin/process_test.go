// SPDX-License-Identifier: Apache-2.0

package plugin_test

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-cni/patchbay/cni/conf"
	"github.com/patchbay-cni/patchbay/cni/plugin"
	"github.com/patchbay-cni/patchbay/cni/wire"
)

// answers are a daemon's that does what it is asked.
func answers(req wire.Request) *wire.Response {
	if req.Command == "ADD" {
		return &wire.Response{Result: []byte(`{"cniVersion":"x","ips":[]}`)}
	}
	return &wire.Response{}
}

// Every command in every version: who answers what.
func TestCommandsByVersion(t *testing.T) {
	t.Parallel()
	const result = `{"cniVersion":"x","ips":[]}` + "\n"
	cases := map[string]struct {
		reason, command string
		// stdout by version, or the code of an error.
		stdout map[string]string
		code   map[string]uint
	}{
		"ADD": {
			"the daemon's result is printed as it is", "ADD",
			map[string]string{"0.3.1": result, "0.4.0": result, "1.0.0": result, "1.1.0": result}, nil,
		},
		"DEL": {
			"success prints nothing", "DEL",
			map[string]string{"0.3.1": "", "0.4.0": "", "1.0.0": "", "1.1.0": ""}, nil,
		},
		"CHECK": {
			"0.3.1 does not have it, the others are told that it is to come", "CHECK", nil,
			map[string]uint{"0.3.1": wire.CodeVersion, "0.4.0": wire.CodeNotImplemented, "1.0.0": wire.CodeNotImplemented, "1.1.0": wire.CodeNotImplemented},
		},
		"GC": {
			"1.1.0 has it, and is told that nothing was freed", "GC", nil,
			map[string]uint{"0.3.1": wire.CodeVersion, "0.4.0": wire.CodeVersion, "1.0.0": wire.CodeVersion, "1.1.0": wire.CodeNotImplemented},
		},
		"STATUS": {
			"1.1.0 has it", "STATUS",
			map[string]string{"1.1.0": ""},
			map[string]uint{"0.3.1": wire.CodeVersion, "0.4.0": wire.CodeVersion, "1.0.0": wire.CodeVersion},
		},
	}
	for name, tc := range cases {
		for _, v := range conf.SupportedVersions() {
			t.Run(name+"/"+v, func(t *testing.T) {
				t.Parallel()
				h := newHost(t)
				h.start(answers)
				got := h.run(env(tc.command, nil), h.config(v), 0)
				if code, bad := tc.code[v]; bad {
					if e := fails(t, got); e.Code != code || e.CNIVersion != v {
						t.Errorf("%s: got %+v, want code %d in version %s", tc.reason, e, code, v)
					}
					return
				}
				if diff := cmp.Diff(outcome{0, tc.stdout[v], ""}, got, cmp.AllowUnexported(outcome{})); diff != "" {
					t.Errorf("%s: -want +got:\n%s", tc.reason, diff)
				}
			})
		}
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	for in, want := range map[string]string{`{"cniVersion":"0.4.0"}`: "0.4.0", `{"cniVersion":"0.1.0"}`: "1.1.0", "{}": "1.1.0"} {
		got := h.run(map[string]string{"CNI_COMMAND": "VERSION"}, in, 0)
		wanted := fmt.Sprintf(`{"cniVersion":%q,"supportedVersions":["0.3.1","0.4.0","1.0.0","1.1.0"]}`+"\n", want)
		if got.status != 0 || got.stdout != wanted {
			t.Errorf("VERSION of %s: got %d and %s, want %s", in, got.status, got.stdout, wanted)
		}
	}
	if e := fails(t, h.run(map[string]string{"CNI_COMMAND": "VERSION"}, "", 0)); e.Code != wire.CodeDecode {
		t.Errorf("VERSION of nothing: got %+v, want code %d", e, wire.CodeDecode)
	}
}

func TestRunWithoutCommand(t *testing.T) {
	t.Parallel()
	got := newHost(t).run(nil, "", 0)
	if got.status != 0 || got.stdout != "" || !strings.Contains(got.stderr, "1.1.0") {
		t.Errorf("without CNI_COMMAND: got %+v, want a line on stderr", got)
	}
}

// The daemon gets what the runtime gave, to the letter.
func TestRequest(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.start(answers)
	if got := h.run(env("ADD", nil), h.config("1.0.0"), 0); got.status != 0 {
		t.Fatalf("ADD: %+v", got)
	}
	want := []wire.Request{{
		Command: "ADD", ContainerID: "4f5a", Netns: "/run/netns/x", IfName: "eth0", Path: "/opt/cni/bin",
		Args: "IgnoreUnknown=1;K8S_POD_NAMESPACE=ns;K8S_POD_NAME=web", Config: []byte(h.config("1.0.0")),
	}}
	if diff := cmp.Diff(want, h.requests()); diff != "" {
		t.Errorf("request: -want +got:\n%s", diff)
	}
}

func TestBadInput(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	good := h.config("1.0.0")
	cases := map[string]struct {
		reason string
		env    map[string]string
		stdin  string
		code   uint
		says   []string
	}{
		"Command":     {"not a command", env("PING", nil), good, wire.CodeEnv, []string{"CNI_COMMAND", `"PING"`}},
		"Container":   {"no way out of a folder", env("ADD", map[string]string{"CNI_CONTAINERID": "../x"}), good, wire.CodeEnv, []string{"CNI_CONTAINERID", `"../x"`}},
		"NoContainer": {"required", env("DEL", map[string]string{"CNI_CONTAINERID": ""}), good, wire.CodeEnv, []string{"CNI_CONTAINERID"}},
		"IfName":      {"too long", env("ADD", map[string]string{"CNI_IFNAME": "a-much-too-long-name"}), good, wire.CodeEnv, []string{"CNI_IFNAME", "a-much-too-long-name", "15"}},
		"Netns":       {"required on ADD", env("ADD", map[string]string{"CNI_NETNS": ""}), good, wire.CodeEnv, []string{"CNI_NETNS"}},
		"Args":        {"not pairs", env("ADD", map[string]string{"CNI_ARGS": "x"}), good, wire.CodeEnv, []string{"CNI_ARGS", `"x"`}},
		"Version":     {"too old", env("ADD", nil), h.config("0.2.0"), wire.CodeVersion, []string{"cniVersion", `"0.2.0"`}},
		"NoConfig":    {"nothing on standard input", env("ADD", nil), "", wire.CodeDecode, []string{"empty"}},
		"NotJSON":     {"garbage on standard input", env("DEL", nil), "{", wire.CodeDecode, []string{"network configuration"}},
		"Unknown":     {"a typing error in the configuration", env("ADD", nil), strings.Replace(good, `"name"`, `"cnidir":"/x","name"`, 1), wire.CodeField, []string{`"cnidir"`, `"/x"`}},
		"Endless":     {"standard input is bounded", env("ADD", nil), strings.Repeat(" ", wire.MaxFrame), wire.CodeDecode, []string{"bytes"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := fails(t, h.run(tc.env, tc.stdin, 0))
			if e.Code != tc.code {
				t.Errorf("%s: got %+v, want code %d", tc.reason, e, tc.code)
			}
			for _, part := range tc.says {
				if !strings.Contains(e.Msg, part) {
					t.Errorf("%s: message %q does not say %q", tc.reason, e.Msg, part)
				}
			}
		})
	}
	t.Cleanup(func() {
		if got := h.recorded(); len(got) != 0 {
			t.Errorf("bad requests were recorded for later: %v", got)
		}
	})
}

// broken refuses every write.
type broken struct{ writes int }

func (b *broken) Write([]byte) (int, error) { b.writes++; return 0, io.ErrClosedPipe }

func TestBrokenPipes(t *testing.T) {
	t.Parallel()
	version := func(string) (string, bool) { return "VERSION", true }
	out := &broken{}
	p := &plugin.Process{LookupEnv: version, Stdin: strings.NewReader("{}"), Stdout: out}
	if status := p.Run(t.Context()); status != 1 || out.writes != 2 {
		t.Errorf("closed stdout: got status %d after %d writes, want 1 after the answer and the error", status, out.writes)
	}
	var stdout strings.Builder
	p = &plugin.Process{LookupEnv: version, Stdin: iotest.ErrReader(errors.New("input is gone")), Stdout: &stdout}
	if status := p.Run(t.Context()); status != 1 || !strings.Contains(stdout.String(), "input is gone") {
		t.Errorf("broken stdin: got status %d and %s", status, stdout.String())
	}
}
