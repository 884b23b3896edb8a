// SPDX-License-Identifier: Apache-2.0

package netwatcher

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
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
		t.Errorf("first address of every other node's NIC, without duplicates: -want +got\n%s", diff)
	}
}

// A node that claims another node's address gets none of its frames, neither on the same NIC nor on
// a NIC of another subnet.
func TestClaimOnAnothersAddress(t *testing.T) {
	t.Parallel()
	victim := node("victim", v1.NIC{Name: "ens4", Addresses: []string{"192.0.2.2/24"}})
	thief := node("a-thief", v1.NIC{Name: "ens4", Addresses: []string{"192.0.2.2/24"}}, v1.NIC{Name: "ens5", Addresses: []string{"192.0.2.2/24"}})
	accepted, refused := PeerVTEPs([]v1.NodeNetwork{thief, victim}, "self").splitAccepted(host(), nil)
	if diff := cmp.Diff([]VTEPs{{"ens4": ipList("192.0.2.2")}, {"ens5": ipList("192.0.2.2")}}, []VTEPs{accepted, refused}, opts); diff != "" {
		t.Errorf("accepted and refused: -want +got\n%s", diff)
	}
}

func TestSplitAcceptedVTEPs(t *testing.T) {
	t.Parallel()
	ranges := VTEPRanges{"ens5": {netip.MustParsePrefix("10.50.0.0/16")}, "ens8": {netip.MustParsePrefix("10.80.0.0/16")}, "ens7": {netip.MustParsePrefix("10.70.0.1/32")}}
	cases := map[string]struct {
		reason          string
		vtep, nic       string
		accept, unknown bool
	}{
		"Subnet":        {reason: "The address is in a subnet of the node's NIC.", nic: "ens4", vtep: "192.0.2.77", accept: true},
		"SubnetIPv6":    {reason: "The rule applies to both families.", nic: "ens4", vtep: "2001:db8::77", accept: true},
		"Anywhere":      {reason: "A compromised node must not make others send to any address.", nic: "ens4", vtep: "203.0.113.66"},
		"InRange":       {reason: "The administrator's ranges allow routed VTEPs.", nic: "ens5", vtep: "10.50.7.7", accept: true},
		"OutOfRange":    {reason: "Ranges have precedence over the node's subnet.", nic: "ens5", vtep: "2001:db8:5::7"},
		"Listed":        {reason: "A range can be a single address.", nic: "ens7", vtep: "10.70.0.1", accept: true},
		"NotListed":     {reason: "Another host of the subnet is not in the range.", nic: "ens7", vtep: "10.70.0.2"},
		"NoNIC":         {reason: "The node does not send on a NIC that it does not have.", nic: "ens9", vtep: "203.0.113.66", accept: true},
		"NoNICInRange":  {reason: "Ranges also apply to a missing NIC.", nic: "ens8", vtep: "10.80.0.1", accept: true},
		"NoNICOutRange": {reason: "Ranges also apply to a missing NIC.", nic: "ens8", vtep: "10.81.0.1"},
		"NoAddress":     {reason: "A NIC without an address has no VXLAN.", nic: "ens6", vtep: "192.0.2.77"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			claims := VTEPs{tc.nic: ipList(tc.vtep)}
			accepted, refused := claims.splitAccepted(host(), ranges)
			want, none := accepted, refused
			if !tc.accept {
				want, none = refused, accepted
			}
			if diff := cmp.Diff(claims, want, opts); diff != "" || len(none) > 0 {
				t.Errorf("%s Accepted %v, refused %v", tc.reason, accepted, refused)
			}
		})
	}
	if accepted, _ := VTEPs(nil).splitAccepted(host(), ranges); accepted != nil {
		t.Errorf("VTEPs that are not known: got %v, want nil", accepted)
	}
}

// If a node claims an address outside of the subnet, no node sends to it. The condition names the
// remedy and not the address: otherwise every node would write the address to its status.
func TestRefusedVTEP(t *testing.T) {
	t.Parallel()
	w := newFakeNode(newNet(1, "b", vxlan(700)))
	w.nodes = []v1.NodeNetwork{
		node("good", v1.NIC{Name: "ens4", Addresses: []string{"192.0.2.2/24"}}),
		node("taken-over", v1.NIC{Name: "ens4", Addresses: []string{"203.0.113.66/24"}}),
	}
	r := w.reconciler(t)
	if err := r.Reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(ipList("192.0.2.2"), w.state.Links[0].Peers, opts); diff != "" {
		t.Errorf("peers: -want +got\n%s", diff)
	}
	if diff := cmp.Diff(ipList("192.0.2.2"), w.filter.VTEPs, opts); diff != "" {
		t.Errorf("the packet filter: -want +got\n%s", diff)
	}
	c := meta.FindStatusCondition(w.written[0].Conditions, conditionVTEPsAccepted)
	if c == nil || c.Status != metav1.ConditionFalse || !strings.Contains(c.Message, "ens4") || strings.Contains(c.Message, "203.") {
		t.Errorf("got %+v", c)
	}
}

func TestPeersOfDevice(t *testing.T) {
	t.Parallel()
	v := VTEPs{"ens4": ipList("192.0.2.1", "192.0.2.2", "2001:db8::2")}
	if got := VTEPs(nil).reachableFrom("ens4", ipList("192.0.2.1")[0]); got != nil {
		t.Errorf("peers that are not known: got %v, want nil", got)
	}
	if got := v.reachableFrom("ens9", ipList("192.0.2.1")[0]); got == nil || len(got) > 0 {
		t.Errorf("no peers: got %#v, want an empty list", got)
	}
	if diff := cmp.Diff(ipList("192.0.2.2"), v.reachableFrom("ens4", ipList("192.0.2.1")[0]), opts); diff != "" {
		t.Errorf("peers of the family without the node itself: -want +got\n%s", diff)
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
		"Speed":   {"Other nodes do not use the speed.", []v1.NIC{{Name: "ens4", Speed: 10, Addresses: []string{"192.0.2.1/24"}}}, []v1.NIC{nic("ens4", "192.0.2.1/24")}, true},
		"New":     {"A NIC without an address is no VTEP.", nil, []v1.NIC{nic("ens4")}, true},
		"Address": {"The address is the VTEP.", []v1.NIC{nic("ens4", "192.0.2.1/24")}, []v1.NIC{nic("ens4", "192.0.2.2/24")}, false},
		"Order":   {"The first address is the VTEP.", []v1.NIC{nic("ens4", "a", "b")}, []v1.NIC{nic("ens4", "b", "a")}, false},
		"Name":    {"VTEPs are by NIC.", []v1.NIC{nic("ens4", "192.0.2.1/24")}, []v1.NIC{nic("ens5", "192.0.2.1/24")}, false},
		"Gone":    {"The NIC has no VTEP any more.", []v1.NIC{nic("ens4", "192.0.2.1/24")}, []v1.NIC{nic("ens4")}, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := SameVTEPs(tc.a, tc.b); got != tc.want {
				t.Errorf("%s got %v, want %v", tc.reason, got, tc.want)
			}
		})
	}
}
