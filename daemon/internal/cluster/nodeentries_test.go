// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam/claims"
)

func TestUsesTellHowFarEachInterfaceCame(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		state  attach.State
		uid    string
		static bool
		want   claims.Phase
	}{
		"Attaching": {reason: "claimed before the record was written", state: attach.Attaching, want: claims.Claimed},
		"Attached":  {reason: "its DanmEp may not exist", state: attach.Attached, want: claims.Claimed},
		"Static":    {reason: "it was asked for by name: nobody else is to get it", state: attach.Released, static: true, want: claims.Releasing},
		"Published": {reason: "its DanmEp is journalled", state: attach.Attached, uid: "u", want: claims.Published},
		"Released":  {reason: "how far the release came is not known", state: attach.Released, want: claims.Releasing},
		"Withdrawn": {reason: "a DanmEp does not make a released address used", state: attach.Released, uid: "u", want: claims.Releasing},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rec := sandbox("ns")
			rec.State, rec.Interfaces[0].EndpointUID = tc.state, tc.uid
			rec.Interfaces[0].StaticV4 = tc.static
			want := []claims.Use{{
				Key:   claims.Key{Ref: network.Ref{Kind: v1.KindClusterNetwork, Name: "n"}, UID: "net-uid"},
				Owner: rec.Interfaces[0].EndpointName,
				V4:    netip.MustParseAddr("10.9.0.5"), Phase: tc.want, Static4: tc.static,
			}}
			if diff := cmp.Diff(want, RecordedUses([]*attach.Record{rec}), cmpopts.EquateComparable(netip.Addr{})); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestNodeEntriesAreOfOneNode(t *testing.T) {
	t.Parallel()
	h := NewNodeEntries("a")
	look := func(name string, held ...string) {
		status := v1.NetworkStatus{IPAM: &v1.IPAMStatus{Held: map[string]v1.HeldAddresses{}}}
		for _, node := range held {
			status.IPAM.Held[node] = v1.HeldAddresses{}
		}
		cn := &v1.ClusterNetwork{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}, Status: status}
		h.Observe(cn, nil, network.ErrInvalid) // what is held of one is held all the same
	}
	look("mine", "a", "b")
	look("others", "b")
	look("nobodys")
	h.Observe(&v1.ClusterNetwork{}, nil, network.ErrInvalid)

	journalled := claims.Key{Ref: network.Ref{Kind: v1.KindClusterNetwork, Name: "journalled"}, UID: "journalled"}
	lost := claims.Key{Ref: network.Ref{Kind: v1.KindClusterNetwork, Name: "lost"}, UID: "lost"}
	got := map[string]bool{}
	h.Add([]claims.Use{{Key: journalled}, {Key: journalled}}, map[claims.Key]int64{lost: 7})
	for _, key := range h.Keys() {
		got[key.UID] = true
	}
	if diff := cmp.Diff(map[string]bool{"mine": true, "journalled": true, "lost": true}, got); diff != "" {
		t.Errorf("networks to settle (-want +got):\n%s", diff)
	}
}

// A daemon that starts reports to the recoveries that it finds.
func TestRecoveringIsReadFromTheStatus(t *testing.T) {
	t.Parallel()
	cn := &v1.ClusterNetwork{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u"}}
	for _, state := range []*v1.IPAMStatus{nil, {}} {
		cn.Status.IPAM = state
		if key, ok := RecoveringNetwork(cn); ok {
			t.Errorf("status.ipam %+v is recovering as %v", state, key)
		}
	}
	cn.Status.IPAM = &v1.IPAMStatus{Recovering: &v1.RecoveryStatus{}}
	want := claims.Key{Ref: network.Ref{Kind: v1.KindClusterNetwork, Name: "n"}, UID: "u"}
	if key, ok := RecoveringNetwork(cn); !ok || key != want {
		t.Errorf("got %v, %t, want %v", key, ok, want)
	}
	if _, ok := RecoveringNetwork(&v1.DanmEp{}); ok {
		t.Error("a DanmEp is recovering")
	}
}
