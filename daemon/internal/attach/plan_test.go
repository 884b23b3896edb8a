// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/validation"
	"pgregory.net/rapid"
)

// A DanmEp's name begins with the Pod's name and is a DNS label.
func TestEndpointName(t *testing.T) {
	t.Parallel()
	cases := map[string]struct{ reason, pod, want string }{
		"Short": {"The name shows the Pod.", "web-0", "web-0-12bd48352574611f"},
		"Long":  {"A long name is truncated to a DNS label.", strings.Repeat("p", 253), strings.Repeat("p", 40) + "-12bd48352574611f"},
		"Cut":   {"The truncated part must end with a letter or digit.", strings.Repeat("p", 38) + "-.x", strings.Repeat("p", 38) + "-12bd48352574611f"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := endpointName(tc.pod, "sandbox", "eth0"); got != tc.want {
				t.Errorf("%s: got %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
}

// Each interface of each sandbox has another name.
func TestEndpointNameIsUnique(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		pod := rapid.StringMatching(`[a-z0-9]([a-z0-9.-]{0,60}[a-z0-9])?`).Filter(func(s string) bool {
			return len(validation.IsDNS1123Subdomain(s)) == 0
		}).Draw(t, "pod")
		id := rapid.StringMatching(`[a-f0-9]{1,64}`)
		a, b := id.Draw(t, "a"), id.Draw(t, "b")
		name := endpointName(pod, a, "eth0")
		if faults := validation.IsDNS1123Subdomain(name); len(faults) > 0 {
			t.Fatalf("%q: %v", name, faults)
		}
		if other := endpointName(pod, b, "eth0"); (name == other) != (a == b) {
			t.Fatalf("sandboxes %q and %q: %q and %q", a, b, name, other)
		}
		if other := endpointName(pod, a, "eth1"); name == other {
			t.Fatalf("two interfaces have the name %q", name)
		}
	})
}

// Labels of Patchbay's domains are removed.
func TestWithoutReservedLabels(t *testing.T) {
	t.Parallel()
	got := withoutReservedLabels(map[string]string{
		"app": "web", "example.org/danm.io": "x", "notdanm.io/a": "x", "danm.io": "a key without a domain",
		"danm.io/a": "x", "danm.k8s.io/a": "x", "patchbay.io/a": "x", "placement.patchbay.io/a": "x", "a.b.danm.io/a": "x",
	})
	want := map[string]string{
		"app": "web", "example.org/danm.io": "x", "notdanm.io/a": "x", "danm.io": "a key without a domain",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
