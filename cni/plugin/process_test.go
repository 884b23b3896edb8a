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

	"github.com/patchbay-cni/patchbay/cni/config"
	"github.com/patchbay-cni/patchbay/cni/plugin"
	"github.com/patchbay-cni/patchbay/cni/wire"
)

// answers returns the answer of a daemon that succeeds.
func answers(req wire.Request) *wire.Response {
	if req.Command == "ADD" {
		return &wire.Response{Result: []byte(`{"cniVersion":"x","ips":[]}`)}
	}
	return &wire.Response{}
}

// Every command has its answer in every version.
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
			"The daemon's result is printed unchanged.", "ADD",
			map[string]string{"0.3.1": result, "0.4.0": result, "1.0.0": result, "1.1.0": result}, nil,
		},
		"DEL": {
			"A DEL that succeeds prints nothing.", "DEL",
			map[string]string{"0.3.1": "", "0.4.0": "", "1.0.0": "", "1.1.0": ""}, nil,
		},
		"CHECK": {
			"Version 0.3.1 does not have CHECK, and it is not implemented.", "CHECK", nil,
			map[string]uint{"0.3.1": wire.CodeVersion, "0.4.0": wire.CodeNotImplemented, "1.0.0": wire.CodeNotImplemented, "1.1.0": wire.CodeNotImplemented},
		},
		"GC": {
			"Version 1.1.0 has GC, and it is not implemented.", "GC", nil,
			map[string]uint{"0.3.1": wire.CodeVersion, "0.4.0": wire.CodeVersion, "1.0.0": wire.CodeVersion, "1.1.0": wire.CodeNotImplemented},
		},
		"STATUS": {
			"Version 1.1.0 has STATUS.", "STATUS",
			map[string]string{"1.1.0": ""},
			map[string]uint{"0.3.1": wire.CodeVersion, "0.4.0": wire.CodeVersion, "1.0.0": wire.CodeVersion},
		},
	}
	for name, tc := range cases {
		for _, v := range config.SupportedVersions() {
			t.Run(name+"/"+v, func(t *testing.T) {
				t.Parallel()
				h := newHost(t)
				h.start(answers)
				got := h.run(env(tc.command, nil), h.config(v), 0)
				if code, bad := tc.code[v]; bad {
					if e := fails(t, got); e.Code != code || e.CNIVersion != v {
						t.Errorf("%s got %+v, want code %d in version %s", tc.reason, e, code, v)
					}
					return
				}
				if diff := cmp.Diff(outcome{0, tc.stdout[v], ""}, got, cmp.AllowUnexported(outcome{})); diff != "" {
					t.Errorf("%s -want +got:\n%s", tc.reason, diff)
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

// The daemon gets the runtime's input unchanged.
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
		reason   string
		env      map[string]string
		stdin    string
		code     uint
		contains []string
	}{
		"Command":     {"The command does not exist.", env("PING", nil), good, wire.CodeEnv, []string{"CNI_COMMAND", `"PING"`}},
		"Container":   {"An ID must not lead out of a directory.", env("ADD", map[string]string{"CNI_CONTAINERID": "../x"}), good, wire.CodeEnv, []string{"CNI_CONTAINERID", `"../x"`}},
		"NoContainer": {"DEL requires the container.", env("DEL", map[string]string{"CNI_CONTAINERID": ""}), good, wire.CodeEnv, []string{"CNI_CONTAINERID"}},
		"IfName":      {"The name is too long.", env("ADD", map[string]string{"CNI_IFNAME": "a-much-too-long-name"}), good, wire.CodeEnv, []string{"CNI_IFNAME", "a-much-too-long-name", "15"}},
		"Netns":       {"ADD requires the namespace.", env("ADD", map[string]string{"CNI_NETNS": ""}), good, wire.CodeEnv, []string{"CNI_NETNS"}},
		"Args":        {"Arguments must be pairs.", env("ADD", map[string]string{"CNI_ARGS": "x"}), good, wire.CodeEnv, []string{"CNI_ARGS", `"x"`}},
		"Version":     {"The version is not supported.", env("ADD", nil), h.config("0.2.0"), wire.CodeVersion, []string{"cniVersion", `"0.2.0"`}},
		"NoConfig":    {"Standard input is empty.", env("ADD", nil), "", wire.CodeDecode, []string{"empty"}},
		"NotJSON":     {"Standard input is not JSON.", env("DEL", nil), "{", wire.CodeDecode, []string{"network configuration"}},
		"Unknown":     {"The configuration has a typo.", env("ADD", nil), strings.Replace(good, `"name"`, `"cnidir":"/x","name"`, 1), wire.CodeField, []string{`"cnidir"`, `"/x"`}},
		"Endless":     {"Standard input is bounded.", env("ADD", nil), strings.Repeat(" ", wire.MaxFrame), wire.CodeDecode, []string{"bytes"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := fails(t, h.run(tc.env, tc.stdin, 0))
			if e.Code != tc.code {
				t.Errorf("%s got %+v, want code %d", tc.reason, e, tc.code)
			}
			for _, part := range tc.contains {
				if !strings.Contains(e.Msg, part) {
					t.Errorf("%s message %q does not contain %q", tc.reason, e.Msg, part)
				}
			}
		})
	}
	t.Cleanup(func() {
		if got := h.recorded(); len(got) != 0 {
			t.Errorf("invalid requests were recorded: %v", got)
		}
	})
}

// broken is a writer that fails.
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
