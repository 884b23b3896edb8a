// SPDX-License-Identifier: Apache-2.0

package claims_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/ipam/claims"
)

// The DanmEps of a network of another plugin carry that plugin's addresses: no
// bitmap counts them and no node answers for them, but they keep the network.
func TestDelegatesHaveNoPool(t *testing.T) {
	net := clusterNetwork("10.0.0.0/24", "fd00::/64")
	net.Type = "flannel"
	inWorld(t, net, func(w *world) {
		w.damaged = true // its addresses have no bits, as wanted
		// A daemon without its journal finds the DanmEp of an attachment.
		ep := w.endpoint("n1", addr("10.0.0.7"), addr("fd00::7"))
		w.store.AddEndpoint(w.net.Ref, ep)
		a := w.node("n1", claims.Use{Key: w.key(), Owner: "other", Phase: claims.Claimed})
		if err := a.Settle(w.Context(), w.key()); err != nil {
			w.Fatal(err)
		}
		w.claim(a, none, none)
		w.idle()
		if o := w.store.Object(w.net.Ref); o.IPAM.V4 != nil || o.IPAM.V6 != nil || o.Allocated != 0 || o.Capacity != 0 {
			w.Errorf("its status has %+v, %d of %d addresses", o.IPAM, o.Allocated, o.Capacity)
		}
		a.Published(w.key(), "other", no, no)
		a.Discard(w.net, no, no)
		w.store.Delete(w.net.Ref)
		w.idle()
		if o := w.store.Object(w.net.Ref); o == nil || w.entry("n1") != "-" {
			w.Fatalf("in use by %s: got %+v, want it without entries", ep.Name, o)
		}
		w.store.RemoveEndpoint(ep.Namespace, ep.Name)
		if err := w.endDeletion(w.store); err != nil {
			w.Fatal(err)
		}
		if o := w.store.Object(w.net.Ref); o != nil {
			w.Errorf("still there: %+v", o)
		}
	})
}

// A network that becomes another plugin's keeps its bitmap as long as somebody
// has an address of ours.
func TestNetworkBecomesADelegates(t *testing.T) {
	inWorld(t, clusterNetwork("10.0.0.0/24", ""), func(w *world) {
		a := w.node("n1")
		a4, _ := w.claim(a, dynamic, none)
		w.publish(a, "n1", a4, no)
		w.idle()
		net := clusterNetwork("10.0.0.0/24", "")
		net.Type = "flannel"
		w.net = w.store.Create(net)
		w.claim(a, none, none)
		if diff := cmp.Diff([]string{a4.String()}, w.bits()); diff != "" {
			w.Errorf("bits while it is in use (-want +got):\n%s", diff)
		}
		a.Discard(w.net, no, no)
		w.release(a, "n1", a4, no)
		w.idle()
		if diff := cmp.Diff((*v1.AddressBitmap)(nil), w.ipam().V4); diff != "" {
			w.Errorf("bitmap when it is not (-want +got):\n%s", diff)
		}
	})
}
