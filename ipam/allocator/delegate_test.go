// SPDX-License-Identifier: Apache-2.0

package allocator_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/ipam/allocator"
	"github.com/patchbay-cni/patchbay/ipam/internal/testbed"
)

// The DanmEps of a network of another plugin carry that plugin's addresses: no
// bitmap counts them and no node answers for them, but they keep the network.
func TestDelegatesHaveNoPool(t *testing.T) {
	net := testbed.ClusterNetwork("10.0.0.0/24", "fd00::/64")
	net.Type = "flannel"
	testbed.RunTest(t, net, func(w *testbed.World) {
		w.Damaged = true // its addresses have no bits, as wanted
		// A daemon without its journal finds the DanmEp of an attachment.
		ep := w.Endpoint("n1", testbed.Addr("10.0.0.7"), testbed.Addr("fd00::7"))
		w.Store.AddEndpoint(w.Net.Ref, ep)
		a := w.Node("n1", allocator.Use{Key: w.Key(), Owner: "other", Phase: allocator.Claimed})
		if err := a.ReconcileEntries(w.Context(), w.Key()); err != nil {
			w.Fatal(err)
		}
		w.Claim(a, testbed.None(), testbed.None())
		w.Idle()
		if o := w.Store.Object(w.Net.Ref); o.IPAM.V4 != nil || o.IPAM.V6 != nil {
			w.Errorf("its status has bitmaps: %+v", o.IPAM)
		}
		a.MarkPublished(w.Key(), "other", testbed.NoAddr(), testbed.NoAddr())
		a.Discard(w.Net, testbed.NoAddr(), testbed.NoAddr())
		w.Store.Delete(w.Net.Ref)
		w.Idle()
		if o := w.Store.Object(w.Net.Ref); o == nil || w.Entry("n1") != "-" {
			w.Fatalf("in use by %s: got %+v, want it without entries", ep.Name, o)
		}
		w.Store.RemoveEndpoint(ep.Namespace, ep.Name)
		if err := w.RemoveFinalizer(w.Store); err != nil {
			w.Fatal(err)
		}
		if o := w.Store.Object(w.Net.Ref); o != nil {
			w.Errorf("still there: %+v", o)
		}
	})
}

// A network that becomes another plugin's keeps its bitmap as long as a Pod
// has an address from it.
func TestNetworkBecomesADelegates(t *testing.T) {
	testbed.RunTest(t, testbed.ClusterNetwork("10.0.0.0/24", ""), func(w *testbed.World) {
		a := w.Node("n1")
		a4, _ := w.Claim(a, testbed.Dynamic(), testbed.None())
		w.Publish(a, "n1", a4, testbed.NoAddr())
		w.Idle()
		net := testbed.ClusterNetwork("10.0.0.0/24", "")
		net.Type = "flannel"
		w.Net = w.Store.Create(net)
		w.Claim(a, testbed.None(), testbed.None())
		if diff := cmp.Diff([]string{a4.String()}, w.Bits()); diff != "" {
			w.Errorf("bits while it is in use (-want +got):\n%s", diff)
		}
		a.Discard(w.Net, testbed.NoAddr(), testbed.NoAddr())
		w.Release(a, "n1", a4, testbed.NoAddr())
		w.Idle()
		if diff := cmp.Diff((*v1.AddressBitmap)(nil), w.IPAM().V4); diff != "" {
			w.Errorf("bitmap when it is not (-want +got):\n%s", diff)
		}
	})
}
