// SPDX-License-Identifier: Apache-2.0

package netwatcher

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/patchbay-cni/patchbay/api/v1"
)

func node(name string, nics ...v1.NIC) v1.NodeNetwork {
	return v1.NodeNetwork{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: v1.NodeNetworkStatus{NICs: nics}}
}

func TestPeerVTEPs(t *testing.T) {
	t.Parallel()
	nodes := []v1.NodeNetwork{
		node("self", v1.NIC{Name: "ens4", Addresses: []string{"192.0.2.1/24"}}),
		node("b", v1.NIC{Name: "ens4", Addresses: []string{"192.0.2.3/24", "192.0.2.33/24"}}, v1.NIC{Name: "ens5", Addresses: []string{"2001:db8::3/64"}}),
		node("a", v1.NIC{Name: "ens4", Addresses: []string{"192.0.2.2/24"}}),
		node("twin", v1.NIC{Name: "ens4", Addresses: []string{"192.0.2.2/24"}}),
		node("bare", v1.NIC{Name: "ens4"}),
		node("new"),
		node("garbage", v1.NIC{Name: "ens4", Addresses: []string{"x"}}, v1.NIC{Name: "ens5", Addresses: []string{"224.0.0.1/4"}}),
	}
	want := VTEPs{"ens4": ipList("192.0.2.2", "192.0.2.3"), "ens5": ipList("2001:db8::3")}
	if diff := cmp.Diff(want, PeerVTEPs(nodes, "self"), opts); diff != "" {
		t.Errorf("the first address of every other node's NIC, each once, in order: -want +got\n%s", diff)
	}
}

func TestPeersOfDevice(t *testing.T) {
	t.Parallel()
	v := VTEPs{"ens4": ipList("192.0.2.1", "192.0.2.2", "2001:db8::2")}
	if got := VTEPs(nil).of("ens4", ipList("192.0.2.1")[0]); got != nil {
		t.Errorf("peers that are not known: got %v, want nil", got)
	}
	if got := v.of("ens9", ipList("192.0.2.1")[0]); got == nil || len(got) > 0 {
		t.Errorf("no peers: got %#v, want an empty list", got)
	}
	if diff := cmp.Diff(ipList("192.0.2.2"), v.of("ens4", ipList("192.0.2.1")[0]), opts); diff != "" {
		t.Errorf("the own family, not the node itself: -want +got\n%s", diff)
	}
}

func TestSameVTEPs(t *testing.T) {
	t.Parallel()
	nic := func(name string, addresses ...string) v1.NIC { return v1.NIC{Name: name, Addresses: addresses} }
	cases := map[string]struct {
		reason string
		a, b   []v1.NIC
		want   bool
	}{
		"Speed":   {"is the node's own matter", []v1.NIC{{Name: "ens4", Speed: 10, Addresses: []string{"192.0.2.1/24"}}}, []v1.NIC{nic("ens4", "192.0.2.1/24")}, true},
		"New":     {"cannot be sent to", nil, []v1.NIC{nic("ens4")}, true},
		"Address": {"is the VTEP", []v1.NIC{nic("ens4", "192.0.2.1/24")}, []v1.NIC{nic("ens4", "192.0.2.2/24")}, false},
		"Order":   {"the first is the VTEP", []v1.NIC{nic("ens4", "a", "b")}, []v1.NIC{nic("ens4", "b", "a")}, false},
		"Name":    {"VTEPs are by NIC", []v1.NIC{nic("ens4", "192.0.2.1/24")}, []v1.NIC{nic("ens5", "192.0.2.1/24")}, false},
		"Gone":    {"nobody is there any more", []v1.NIC{nic("ens4", "192.0.2.1/24")}, []v1.NIC{nic("ens4")}, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := SameVTEPs(tc.a, tc.b); got != tc.want {
				t.Errorf("%s: got %v, want %v", tc.reason, got, tc.want)
			}
		})
	}
}
