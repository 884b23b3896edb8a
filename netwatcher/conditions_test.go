// SPDX-License-Identifier: Apache-2.0

package netwatcher

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
)

func TestReady(t *testing.T) {
	t.Parallel()
	good := v1.HostLink{Name: "good.1", State: v1.LinkUp}
	missing := v1.HostLink{Name: "far.9", State: v1.LinkError, Error: "no NIC ens9"}
	cases := map[string]struct {
		reason    string
		links     []v1.HostLink
		refused   []v1.RefusedNetwork
		delegates []v1.DelegateReport
		want      metav1.Condition
	}{
		"None": {
			reason: "Without links the node is ready.",
			want:   metav1.Condition{Type: "Ready", Status: "True", Reason: "LinksUp", Message: "links up: 0"},
		},
		"Up": {
			reason: "All links are up.",
			links:  []v1.HostLink{good},
			want:   metav1.Condition{Type: "Ready", Status: "True", Reason: "LinksUp", Message: "links up: 1"},
		},
		"Error": {
			reason: "The message names the failed link and the cause.",
			links:  []v1.HostLink{good, missing},
			want:   metav1.Condition{Type: "Ready", Status: "False", Reason: "LinksNotUp", Message: "far.9: no NIC ens9"},
		},
		"Refused": {
			reason: "The node is not ready if a network is refused.",
			links:  []v1.HostLink{good}, refused: []v1.RefusedNetwork{{Network: "DanmNet/a/b", Error: "taken"}},
			want: metav1.Condition{Type: "Ready", Status: "False", Reason: "NetworkRefused", Message: "DanmNet/a/b: taken"},
		},
		"Delegate": {
			reason: "The node is not ready if a plugin is not installed.",
			links:  []v1.HostLink{good}, delegates: []v1.DelegateReport{{NetworkType: "flannel", NetworkID: "f"}, {NetworkType: "ipvlam", NetworkID: "x", Error: "not installed"}},
			want: metav1.Condition{Type: "Ready", Status: "False", Reason: "DelegateNotInstalled", Message: "ipvlam x: not installed"},
		},
		"Several": {
			reason: "The message names one link and the number of others.",
			links:  []v1.HostLink{{Name: "down.7", State: v1.LinkDown}, good, missing},
			want:   metav1.Condition{Type: "Ready", Status: "False", Reason: "LinksNotUp", Message: "down.7 is down (and 1 more)"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tc.want, readyCondition(&v1.NodeNetworkStatus{Links: tc.links, Refused: tc.refused, Delegates: tc.delegates}, nil)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}
