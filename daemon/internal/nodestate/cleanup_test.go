// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/daemon/internal/kubeclient"
)

// statusClient has the status of one NodeNetwork.
type statusClient struct {
	client.Client

	status v1.NodeNetworkStatus
	writes int
}

// statusWriter writes the status of a statusClient.
type statusWriter struct {
	client.SubResourceWriter

	to *statusClient
}

// Get implements client.Client.
func (c *statusClient) Get(_ context.Context, _ client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	if n, ok := into.(*v1.NodeNetwork); ok {
		c.status.DeepCopyInto(&n.Status)
	}
	return nil
}

// Status implements client.Client.
func (c *statusClient) Status() client.SubResourceWriter { return &statusWriter{to: c} }

// Update implements client.SubResourceWriter.
func (w *statusWriter) Update(_ context.Context, o client.Object, _ ...client.SubResourceUpdateOption) error {
	if n, ok := o.(*v1.NodeNetwork); ok {
		w.to.status = n.Status
		w.to.writes++
	}
	return nil
}

// The NICs that a daemon has reported stay after its clean-up: to other nodes, they are the ends of tunnels that Pods use.
func TestReportCleanUp(t *testing.T) {
	t.Parallel()
	nics := []v1.NIC{{Name: "br0", Addresses: []string{"192.0.2.1/24"}}}
	before, kept := []v1.HostLink{{Name: "a.5"}, {Name: "b"}}, []v1.HostLink{{Name: "b"}}
	for name, tc := range map[string]struct {
		reason      string
		links, want []v1.HostLink
	}{
		"Kept":    {"The status has what is left.", kept, kept},
		"None":    {"Nothing is left.", []v1.HostLink{}, []v1.HostLink{}},
		"Unknown": {"The node could not be read.", nil, before},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ready := metav1.Condition{Type: "Ready", Status: metav1.ConditionTrue, Reason: "Ready"}
			c := &statusClient{status: v1.NodeNetworkStatus{NICs: nics, Links: before, Conditions: []metav1.Condition{ready}}}
			n := &NodeNetworks{conn: &kubeclient.Connection{Direct: c, Node: "n1"}}
			report := metav1.Condition{Type: "CleanedUp", Status: metav1.ConditionTrue, Reason: "CleanedUp", LastTransitionTime: metav1.Now()}
			if err := n.ReportCleanUp(t.Context(), tc.links, report); err != nil {
				t.Fatal(err)
			}
			want := v1.NodeNetworkStatus{NICs: nics, Links: tc.want, Conditions: []metav1.Condition{ready, report}}
			if diff := cmp.Diff(want, c.status); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// A condition that is so already is not written again: all nodes receive each write.
func TestReportCondition(t *testing.T) {
	t.Parallel()
	c := &statusClient{status: v1.NodeNetworkStatus{Links: []v1.HostLink{{Name: "a.5"}}}}
	n := &NodeNetworks{conn: &kubeclient.Connection{Direct: c, Node: "n1"}}
	missing := &metav1.Condition{Type: v1.ConditionDanmEpsMissing, Status: metav1.ConditionTrue, Reason: v1.ReasonDanmEpNotCreated, LastTransitionTime: metav1.Now()}
	for _, step := range []struct {
		reason     string
		condition  *metav1.Condition
		conditions int
		writes     int
	}{
		{"There is none yet.", nil, 0, 0},
		{"Pods have no DanmEp.", missing, 1, 1},
		{"They still have none.", missing, 1, 1},
		{"Their DanmEps exist.", nil, 0, 2},
		{"They still do.", nil, 0, 2},
	} {
		if err := n.ReportCondition(t.Context(), v1.ConditionDanmEpsMissing, step.condition); err != nil {
			t.Fatal(err)
		}
		if len(c.status.Conditions) != step.conditions || len(c.status.Links) != 1 || c.writes != step.writes {
			t.Errorf("%s Got %d conditions, %d links and %d writes, want %d, 1 and %d", step.reason, len(c.status.Conditions), len(c.status.Links), c.writes, step.conditions, step.writes)
		}
	}
}
