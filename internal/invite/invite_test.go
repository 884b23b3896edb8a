// SPDX-License-Identifier: Apache-2.0

package invite

import (
	"bytes"
	"regexp"
	"strings"
	"testing"
	"time"
)

// The printed commands are those of `cluster join` and `cluster accept`.
func TestPrintInstructions(t *testing.T) {
	t.Parallel()
	i := Invitation{Cluster: "east", Hub: "https://hub:6443", CA: []byte("PEM"), ExpiresAt: time.Unix(0, 0)}
	secret, token := i.bootstrapToken()
	var out bytes.Buffer
	if err := i.printInstructions(&out, token); err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`(?m)^kubectl patchbay cluster join east --hub=https://hub:6443 --join-token=([a-z0-9]{6})\.([a-z0-9]{16}) --ca=UEVN$`)
	found := line.FindStringSubmatch(out.String())
	if found == nil || found[1] != secret.StringData["token-id"] || found[2] != secret.StringData["token-secret"] {
		t.Errorf("got %q, want the token of the Secret in it", out.String())
	}
	for _, want := range []string{"before 1970-01-01T00:00:00Z", "\nkubectl patchbay cluster accept east\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("want %q in %q", want, out.String())
		}
	}
	i.CA = nil
	out.Reset()
	if err := i.printInstructions(&out, token); err != nil || strings.Contains(out.String(), "--ca") {
		t.Errorf("a public CA: got %q, %v", out.String(), err)
	}
}

// A token allows one cluster to join, and nothing else.
func TestSecrets(t *testing.T) {
	t.Parallel()
	i := Invitation{Cluster: "east", ExpiresAt: time.Now()}
	one, first := i.bootstrapToken()
	other, second := i.bootstrapToken()
	if one.Name == other.Name || first == second {
		t.Error("two tokens are equal")
	}
	if got := one.StringData["auth-extra-groups"]; got != "system:bootstrappers:patchbay:east" {
		t.Errorf("groups: got %q", got)
	}
	if _, signs := one.StringData["usage-bootstrap-signing"]; signs || one.StringData["usage-bootstrap-authentication"] != "true" {
		t.Errorf("usages: got %v", one.StringData)
	}
}

func TestValidateClusterName(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason, name string
		good         bool
	}{
		"Good":    {reason: "a name is a DNS label", name: "east-1", good: true},
		"Longest": {reason: "the namespace has the prefix cluster-", name: strings.Repeat("x", 55), good: true},
		"Long":    {reason: "the name of the namespace would be too long", name: strings.Repeat("x", 56)},
		"Upper":   {reason: "a name is in lower case", name: "East"},
		"Dots":    {reason: "a DNS label has no dots", name: "east.example"},
		"Empty":   {reason: "a name must not be empty"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := ValidateClusterName(tc.name); (err == nil) != tc.good {
				t.Errorf("%s: %q: got %v", tc.reason, tc.name, err)
			}
		})
	}
}
