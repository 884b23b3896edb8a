// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"bytes"
	"strings"
	"testing"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
)

func TestParseNetworkRef(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason, text string
		want         network.Ref
		err          string
	}{
		"Cluster":   {reason: "a cluster-scoped network has no namespace", text: "clusternetwork/storage", want: network.Ref{Kind: v1.KindClusterNetwork, Name: "storage"}},
		"Plural":    {reason: "kubectl get -o name prints this form", text: "clusternetworks.danm.io/storage", want: network.Ref{Kind: v1.KindClusterNetwork, Name: "storage"}},
		"Kind":      {reason: "manifests have this form", text: "TenantNetwork/lan", want: network.Ref{Kind: v1.KindTenantNetwork, Namespace: "ns", Name: "lan"}},
		"Short":     {reason: "kubectl accepts short names too", text: "dnet/lan", want: network.Ref{Kind: v1.KindDanmNet, Namespace: "ns", Name: "lan"}},
		"OtherKind": {reason: "other kinds have no addresses", text: "pod/x", err: "must be a kind of network"},
		"NameOnly":  {reason: "three kinds may have an object of this name", text: "storage", err: "KIND/NAME"},
		"NoName":    {reason: "the verb is for one network", text: "cn/", err: "KIND/NAME"},
		"Namespace": {reason: "the namespace is a flag, not a part of the argument", text: "dnet/ns/lan", err: "KIND/NAME"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := parseNetworkRef(tc.text, "ns")
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("%s: got error %v, want one with %q", tc.reason, err, tc.err)
				}
				return
			}
			if err != nil || got != tc.want {
				t.Errorf("%s: got %v, %v, want %v", tc.reason, got, err, tc.want)
			}
		})
	}
}

func TestAppendName(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason, names, want string
	}{
		"First":  {reason: "no node was skipped", want: "b"},
		"Second": {reason: "others stay skipped", names: "a, c", want: "a,c,b"},
		"Again":  {reason: "the name is there already", names: "b,a", want: "b,a"},
		"Part":   {reason: "a part of a name is another name", names: "bb", want: "bb,b"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := appendName(tc.names, "b"); got != tc.want {
				t.Errorf("%s: got %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
}

func TestIPAMUsageErrors(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		args   []string
		want   string
	}{
		"NoVerb":   {reason: "ipam needs a verb", args: []string{"ipam"}, want: "rebuild or skip"},
		"NoTarget": {reason: "exactly one network is needed", args: []string{"ipam", "rebuild"}, want: "give kind and name of one network, such as clusternetwork/storage: got 0"},
		"NoNode":   {reason: "exactly one node is needed", args: []string{"ipam", "skip", "a", "b"}, want: "give the name of one Node, such as node-7: got 2"},
		"NotANode": {reason: "a list of names is no name", args: []string{"ipam", "skip", "a,b"}, want: `node "a,b": must be the name of a Node`},
		"NoConfig": {reason: "the message names the file", args: []string{"ipam", "skip", "a", "--kubeconfig=/nowhere"}, want: "/nowhere"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			err := Run(t.Context(), tc.args, &out, &out)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: got error %v, want one with %q", tc.reason, err, tc.want)
			}
		})
	}
}

func TestHelpHasKubectlsFlags(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	if err := Run(t.Context(), []string{"ipam", "skip", "--help"}, &out, &out); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"kubectl patchbay ipam skip NODE", "powered off", "--kubeconfig", "--context", "--namespace"} {
		if !strings.Contains(out.String(), part) {
			t.Errorf("help has no %q:\n%s", part, out.String())
		}
	}
}
