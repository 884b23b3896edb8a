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
