// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package nodestate

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/daemon/internal/kubetest"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

// A node writes its NodeNetwork, and the other nodes see the addresses of its NICs.
func TestNodeNetworkIsWrittenAndSeenByOthers(t *testing.T) {
	t.Parallel()
	env := apitest.Start(t)
	name := apitest.Name("node")
	object := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := env.Client.Create(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	ctx := kubetest.LogContext(t)
	watch := func(node string) (*NodeNetworks, *atomic.Int64) {
		conn := kubetest.ConnectAs(t, env, node)
		changes := &atomic.Int64{}
		n, err := WatchNodeNetworks(ctx, conn, func() { changes.Add(1) })
		if err != nil {
			t.Fatal(err)
		}
		kubetest.Start(ctx, t, conn.Cache.Start)
		return n, changes
	}
	own, _ := watch(name)
	other, changes := watch(kubetest.Node)

	for _, address := range []string{"192.0.2.7/24", "192.0.2.8/24"} {
		status := v1.NodeNetworkStatus{
			NICs:  []v1.NIC{{Name: "ens4", MAC: "02:00:00:00:00:01", Addresses: []string{address, "2001:db8::7/64"}}},
			Links: []v1.HostLink{{Name: "a.5", Identity: "vlan/ens4/5", State: "Up"}},
		}
		if err := own.WriteStatus(ctx, status); err != nil {
			t.Fatal(err)
		}
		got := &v1.NodeNetwork{}
		if err := env.Client.Get(ctx, client.ObjectKey{Name: name}, got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(status, got.Status); diff != "" {
			t.Errorf("status as stored (-want +got):\n%s", diff)
		}
		if owners := got.OwnerReferences; len(owners) != 1 || owners[0].UID != object.UID {
			t.Errorf("owners are %+v, want the Node, so that garbage collection deletes the object with it", owners)
		}
		want := netip.MustParsePrefix(address).Addr()
		kubetest.Eventually(t, "the other node to see it", func(ctx context.Context) error {
			if nics := other.NICs(ctx); !slices.Contains(nics, want) || other.NodeCount(ctx) < 1 {
				return fmt.Errorf("addresses %v", nics)
			}
			return nil
		})
	}
	list, err := other.List(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, nn := range list {
		if nn.Name == name && (len(nn.Status.Links) > 0 || nn.Status.NICs[0].MAC != "") {
			t.Errorf("cached %+v, want only names and addresses of NICs", nn.Status)
		}
	}
	if changes.Load() == 0 {
		t.Error("got no call after a change, want at least one")
	}
}
