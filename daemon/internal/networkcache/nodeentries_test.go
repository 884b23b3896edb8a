// SPDX-License-Identifier: Apache-2.0

package networkcache

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam/allocator"
)

// NodeEntries has the networks with an entry of its own node, from their status or the journal.
func TestNodeEntriesAreOfOneNode(t *testing.T) {
	t.Parallel()
	n := NewNodeEntries("a")
	observe := func(name string, nodes ...string) {
		status := v1.NetworkStatus{IPAM: &v1.IPAMStatus{Held: map[string]v1.HeldAddresses{}}}
		for _, node := range nodes {
			status.IPAM.Held[node] = v1.HeldAddresses{}
		}
		cn := &v1.ClusterNetwork{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}, Status: status}
		n.Observe(cn, nil, network.ErrInvalid) // an invalid network has entries too
	}
	observe("own", "a", "b")
	observe("other", "b")
	observe("none")
	n.Observe(&v1.ClusterNetwork{}, nil, network.ErrInvalid)

	journalled := network.Key{Ref: network.Ref{Kind: v1.KindClusterNetwork, Name: "journalled"}, UID: "journalled"}
	deleted := network.Key{Ref: network.Ref{Kind: v1.KindClusterNetwork, Name: "deleted"}, UID: "deleted"}
	got := map[string]bool{}
	n.Add([]allocator.Use{{Key: journalled}, {Key: journalled}}, map[network.Key]int64{deleted: 7})
	for _, key := range n.Keys() {
		got[key.UID] = true
	}
	if diff := cmp.Diff(map[string]bool{"own": true, "journalled": true, "deleted": true}, got); diff != "" {
		t.Errorf("networks to settle (-want +got):\n%s", diff)
	}
}

// A daemon that starts reads from a network's status whether the network recovers.
func TestRecoveringIsReadFromTheStatus(t *testing.T) {
	t.Parallel()
	cn := &v1.ClusterNetwork{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u"}}
	for _, state := range []*v1.IPAMStatus{nil, {}} {
		cn.Status.IPAM = state
		if key, ok := RecoveringNetwork(cn); ok {
			t.Errorf("status.ipam %+v: got recovering network %v, want none", state, key)
		}
	}
	cn.Status.IPAM = &v1.IPAMStatus{Recovering: &v1.RecoveryStatus{}}
	want := network.Key{Ref: network.Ref{Kind: v1.KindClusterNetwork, Name: "n"}, UID: "u"}
	if key, ok := RecoveringNetwork(cn); !ok || key != want {
		t.Errorf("got %v, %t, want %v", key, ok, want)
	}
	if _, ok := RecoveringNetwork(&v1.DanmEp{}); ok {
		t.Error("got a recovering DanmEp, want only networks")
	}
}
