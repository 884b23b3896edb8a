// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

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

// recoveryClient has one Node and one Event.
type recoveryClient struct {
	client.Client

	ready corev1.ConditionStatus
	get   error
	event corev1.Event
}

// Get implements client.Client.
func (c *recoveryClient) Get(_ context.Context, _ client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	if node, ok := into.(*corev1.Node); ok && c.ready != "" {
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: c.ready}}
	}
	return c.get
}

// List implements client.Client.
func (c *recoveryClient) List(_ context.Context, into client.ObjectList, _ ...client.ListOption) error {
	if events, ok := into.(*corev1.EventList); ok {
		events.Items = []corev1.Event{c.event}
	}
	return nil
}

// A node that may be Ready is not skipped: its Pods' addresses would be given to others.
func TestCheckNodeNotReady(t *testing.T) {
	t.Parallel()
	nodes := schema.GroupResource{Resource: "nodes"}
	for name, tc := range map[string]struct {
		reason string
		c      recoveryClient
		want   []string // in the error, nil for none
	}{
		"Ready":     {"Its daemon reports its addresses.", recoveryClient{ready: corev1.ConditionTrue}, []string{"node node-7 is Ready", "use --force"}},
		"NotReady":  {"Kubelet has said that it stops.", recoveryClient{ready: corev1.ConditionFalse}, nil},
		"Unknown":   {"Kubelet does not answer.", recoveryClient{ready: corev1.ConditionUnknown}, nil},
		"Gone":      {"A Node is deleted after its machine is off.", recoveryClient{get: apierrors.NewNotFound(nodes, "node-7")}, nil},
		"Forbidden": {"It may be Ready.", recoveryClient{get: apierrors.NewForbidden(nodes, "node-7", errors.New("no right"))}, []string{"node node-7: must not be Ready", "(get nodes)", "ask a cluster administrator whether its machine is off", "use --force"}},
		"Away":      {"It may be Ready.", recoveryClient{get: errors.New("connection refused")}, []string{"get Node node-7: connection refused"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := checkNodeNotReady(t.Context(), &tc.c, "node-7")
			if (err != nil) != (tc.want != nil) {
				t.Fatalf("%s Got %v, want an error with %q", tc.reason, err, tc.want)
			}
			for _, part := range tc.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%s Got %v, want %q in it", tc.reason, err, part)
				}
			}
		})
	}
}

// Others than the controller may write Events on a network, and the controller's have texts of nodes.
func TestEventReachesATerminalAsOneLine(t *testing.T) {
	t.Parallel()
	c := &recoveryClient{event: corev1.Event{ObjectMeta: metav1.ObjectMeta{UID: "1"}, Reason: v1.ReasonBitmapRebuilt, Message: "7 \x1b[2J\nfreed"}}
	got := awaitEvent(t.Context(), c, &metav1.PartialObjectMetadata{}, nil, v1.ReasonBitmapRebuilt)
	if want := "7  [2J freed"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
