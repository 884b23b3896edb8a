// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
	"github.com/patchbay-cni/patchbay/daemon/internal/cluster"
	"github.com/patchbay-cni/patchbay/daemon/internal/journal"
	"github.com/patchbay-cni/patchbay/daemon/internal/metrics"
	"github.com/patchbay-cni/patchbay/internal/network"
)

func TestHealth(t *testing.T) {
	t.Parallel()
	d := &daemon{metrics: metrics.New("v1"), addresses: cluster.NewDeferredAllocator()}
	get := func(path string) int {
		w := httptest.NewRecorder()
		d.healthHandler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		return w.Code
	}
	expect := func(when string, want map[string]int) {
		t.Helper()
		got := map[string]int{}
		for path := range want {
			got[path] = get(path)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
	}
	expect("before the API server answered, DELs are served but no Pod can come",
		map[string]int{"/healthz": 200, "/readyz": 503, "/metrics": 404, "/": 404})
	d.ready.Store(true)
	expect("afterwards", map[string]int{"/healthz": 200, "/readyz": 200})
}

func TestPodLinksAreThoseOfLiveSandboxes(t *testing.T) {
	t.Parallel()
	j, err := journal.Open(filepath.Join(t.TempDir(), "j"), journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() })
	on := func(id string, state attach.State, n network.Network) {
		rec := &attach.Record{ContainerID: id, IfName: "eth0", State: state, Interfaces: []attach.Interface{{Network: n}}}
		if err := j.Put(rec); err != nil {
			t.Fatal(err)
		}
	}
	vlan := network.Network{Type: "ipvlan", Device: "ens4", VLAN: 500}
	on("attached", attach.Attached, vlan)
	on("coming", attach.Attaching, network.Network{Type: "macvlan", Device: "ens4", VXLAN: 700})
	on("gone", attach.Released, network.Network{Type: "ipvlan", Device: "ens4", VLAN: 501})
	on("delegated", attach.Attached, network.Network{Type: "bridge"})
	on("delegated to a VLAN", attach.Attached, network.Network{Type: "bridge", Device: "ens5", VLAN: 5})
	// Beside these alone, the NIC passes tags again.
	on("delegated to a NIC", attach.Attached, network.Network{Type: "bridge", Device: "ens6"})
	on("on a trunk", attach.Attached, network.Network{Type: "macvlan", Device: "ens8", Trunk: true})
	flat := network.Network{Type: "macvlan", Device: "ens7"}
	on("on a NIC", attach.Attached, flat)

	got, err := podLinks{j}.Links()
	if err != nil {
		t.Fatal(err)
	}
	id, _ := vlan.Link()
	nic, _ := flat.Link()
	if len(got) != 4 || !got[id] || !got[nic] {
		t.Errorf("links in use are %v, want the VLANs 500 and 5, the VXLAN 700 and the NIC ens7", got)
	}
}
