// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-cni/patchbay/cni/config"
	"github.com/patchbay-cni/patchbay/cni/wire"
)

func TestParseArgs(t *testing.T) {
	t.Parallel()
	pod := config.Args{PodNamespace: "ns", PodName: "web-0.a", PodUID: "1b-2", SandboxID: "abc"}
	cases := map[string]struct {
		reason, in string
		want       config.Args
	}{
		"Containerd": {
			"Containerd 1.7 and 2 write these arguments.",
			"IgnoreUnknown=1;K8S_POD_NAMESPACE=ns;K8S_POD_NAME=web-0.a;K8S_POD_INFRA_CONTAINER_ID=abc;K8S_POD_UID=1b-2", pod,
		},
		"Order": {
			"IgnoreUnknown applies to the keys before it, too.",
			"X=1;K8S_POD_NAMESPACE=ns;K8S_POD_NAME=web-0.a;K8S_POD_INFRA_CONTAINER_ID=abc;K8S_POD_UID=1b-2;IgnoreUnknown=true", pod,
		},
		"Empty":     {"DEL does not require arguments.", "", config.Args{}},
		"Separator": {"Ocicni ends the arguments with a separator.", "IgnoreUnknown=1;K8S_POD_NAME=p;", config.Args{PodName: "p"}},
		"NoUID":     {"CRI-O before 1.22 has no UID.", "K8S_POD_NAMESPACE=ns;K8S_POD_NAME=p;K8S_POD_UID=", config.Args{PodNamespace: "ns", PodName: "p"}},
		"Equals":    {"The first = ends the key.", "IgnoreUnknown=1;Q=a=b", config.Args{}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := config.ParseArgs(tc.in)
			if err != nil {
				t.Fatalf("%s got %v", tc.reason, err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s -want +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestParseArgsRefuses(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason, in string
		contains   []string
	}{
		"Unknown":   {"Unknown keys are errors by default.", "K8S_POD=x", []string{`"K8S_POD"`, "IgnoreUnknown"}},
		"Strict":    {"IgnoreUnknown=0 is the default.", "IgnoreUnknown=0;A=b", []string{`"A"`}},
		"NoValue":   {"The argument has no value.", "K8S_POD_NAME", []string{`"K8S_POD_NAME"`, "KEY=value"}},
		"NoKey":     {"The argument has no key.", "=x", []string{`"=x"`}},
		"Twice":     {"Neither value has precedence.", "K8S_POD_NAME=a;K8S_POD_NAME=b", []string{"K8S_POD_NAME", "twice"}},
		"Flag":      {"The value must be true or false.", "IgnoreUnknown=maybe", []string{"IgnoreUnknown", `"maybe"`}},
		"Path":      {"A value must not contain a path separator.", "K8S_POD_NAME=../../etc", []string{"K8S_POD_NAME", `"../../etc"`}},
		"NewLine":   {"A value must not forge log lines.", "K8S_POD_UID=a\nb", []string{"K8S_POD_UID", `"a\nb"`}},
		"Long":      {"Names have at most 253 bytes.", "K8S_POD_NAMESPACE=" + strings.Repeat("n", 254), []string{"K8S_POD_NAMESPACE", "253"}},
		"LongValue": {"Messages must stay short.", strings.Repeat("x", 4096), []string{"…"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := config.ParseArgs(tc.in)
			if got := code(t, err); got != wire.CodeEnv {
				t.Fatalf("%s got code %d (%v), want %d", tc.reason, got, err, wire.CodeEnv)
			}
			for _, part := range append(tc.contains, "CNI_ARGS") {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%s message %q does not contain %q", tc.reason, err, part)
				}
			}
		})
	}
}

func FuzzParseArgs(f *testing.F) {
	f.Add("IgnoreUnknown=1;K8S_POD_NAMESPACE=ns;K8S_POD_NAME=p;K8S_POD_UID=u")
	f.Fuzz(func(t *testing.T, in string) {
		a, err := config.ParseArgs(in)
		if code(t, err) == 0 && strings.ContainsAny(a.PodNamespace+a.PodName+a.PodUID+a.SandboxID, "/\n\x00 ") {
			t.Errorf("ParseArgs(%q) accepted %+v", in, a)
		}
	})
}
