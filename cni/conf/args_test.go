// SPDX-License-Identifier: Apache-2.0

package conf_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-cni/patchbay/cni/conf"
	"github.com/patchbay-cni/patchbay/cni/wire"
)

func TestParseArgs(t *testing.T) {
	t.Parallel()
	pod := conf.Args{PodNamespace: "ns", PodName: "web-0.a", PodUID: "1b-2", SandboxID: "abc"}
	cases := map[string]struct {
		reason, in string
		want       conf.Args
	}{
		"Containerd": {
			"what containerd 1.7 and 2 write",
			"IgnoreUnknown=1;K8S_POD_NAMESPACE=ns;K8S_POD_NAME=web-0.a;K8S_POD_INFRA_CONTAINER_ID=abc;K8S_POD_UID=1b-2", pod,
		},
		"Order": {
			"IgnoreUnknown holds for keys before it",
			"X=1;K8S_POD_NAMESPACE=ns;K8S_POD_NAME=web-0.a;K8S_POD_INFRA_CONTAINER_ID=abc;K8S_POD_UID=1b-2;IgnoreUnknown=true", pod,
		},
		"Empty":     {"DEL can do without", "", conf.Args{}},
		"Separator": {"ocicni ends with one", "IgnoreUnknown=1;K8S_POD_NAME=p;", conf.Args{PodName: "p"}},
		"NoUID":     {"CRI-O before 1.22", "K8S_POD_NAMESPACE=ns;K8S_POD_NAME=p;K8S_POD_UID=", conf.Args{PodNamespace: "ns", PodName: "p"}},
		"Equals":    {"the first = ends the key", "IgnoreUnknown=1;Q=a=b", conf.Args{}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := conf.ParseArgs(tc.in)
			if err != nil {
				t.Fatalf("%s: %v", tc.reason, err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s: -want +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestParseArgsRefuses(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason, in string
		says       []string
	}{
		"Unknown":   {"strict unless told otherwise", "K8S_POD=x", []string{`"K8S_POD"`, "IgnoreUnknown"}},
		"StillFew":  {"IgnoreUnknown=0 is the default", "IgnoreUnknown=0;A=b", []string{`"A"`}},
		"NoValue":   {"not a pair", "K8S_POD_NAME", []string{`"K8S_POD_NAME"`, "KEY=value"}},
		"NoKey":     {"not a pair", "=x", []string{`"=x"`}},
		"Twice":     {"which one holds?", "K8S_POD_NAME=a;K8S_POD_NAME=b", []string{"K8S_POD_NAME", "twice"}},
		"Flag":      {"neither true nor false", "IgnoreUnknown=maybe", []string{"IgnoreUnknown", `"maybe"`}},
		"Path":      {"no way out of a folder", "K8S_POD_NAME=../../etc", []string{"K8S_POD_NAME", `"../../etc"`}},
		"NewLine":   {"no forged log lines", "K8S_POD_UID=a\nb", []string{"K8S_POD_UID", `"a\nb"`}},
		"Long":      {"names have 253 bytes at most", "K8S_POD_NAMESPACE=" + strings.Repeat("n", 254), []string{"K8S_POD_NAMESPACE", "253"}},
		"LongValue": {"messages stay short", strings.Repeat("x", 4096), []string{"…"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := conf.ParseArgs(tc.in)
			if got := code(t, err); got != wire.CodeEnv {
				t.Fatalf("%s: got code %d (%v), want %d", tc.reason, got, err, wire.CodeEnv)
			}
			for _, part := range append(tc.says, "CNI_ARGS") {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%s: message %q does not say %q", tc.reason, err, part)
				}
			}
		})
	}
}

func FuzzParseArgs(f *testing.F) {
	f.Add("IgnoreUnknown=1;K8S_POD_NAMESPACE=ns;K8S_POD_NAME=p;K8S_POD_UID=u")
	f.Fuzz(func(t *testing.T, in string) {
		a, err := conf.ParseArgs(in)
		if code(t, err) == 0 && strings.ContainsAny(a.PodNamespace+a.PodName+a.PodUID+a.SandboxID, "/\n\x00 ") {
			t.Errorf("ParseArgs(%q) accepted %+v", in, a)
		}
	})
}
