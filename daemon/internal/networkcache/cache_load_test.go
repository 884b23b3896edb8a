// SPDX-License-Identifier: Apache-2.0

package networkcache

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/daemon/internal/kubeclient"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// tenantAPI is an API server with TenantNetworks and TenantConfigs.
type tenantAPI struct {
	configAPI

	networks []v1.TenantNetwork
}

// List implements client.Client.
func (s *tenantAPI) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	switch into := list.(type) {
	case *v1.TenantNetworkList:
		into.Items = s.networks
	case *v1.TenantConfigList:
		return s.configAPI.List(ctx, list, opts...)
	}
	return nil
}

// add adds a network of namespace red on a VLAN, with an assignment.
func (s *tenantAPI) add(name string, vlan int, token string) {
	assignment := network.Assignment{Slot: network.TenantSlot{Kind: network.SlotVLAN, Device: "ens4", ID: vlan}, Token: token}
	s.networks = append(s.networks, v1.TenantNetwork{
		ObjectMeta: metav1.ObjectMeta{Namespace: "red", Name: name, UID: "u", Annotations: map[string]string{
			v1.AssignedAnnotation: assignment.String(),
		}},
		Spec: v1.NetworkSpec{NetworkID: "net", Options: v1.NetworkOptions{Device: "ens4", VLAN: int32(vlan)}},
	})
}

// A network whose assignment cannot be confirmed does not block the other networks, needs no list
// of its own, and is retried.
func TestLoadAllContinuesPastUnconfirmed(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason   string
		breakAPI func(*tenantAPI)
		// lists is the number of lists of TenantConfigs; 0 allows any number.
		lists int
	}{
		"Invalid": {reason: "The status of a TenantConfig is invalid.", lists: 2, breakAPI: func(s *tenantAPI) {
			s.pages["invalid"] = map[string]string{"vlan/ens4/15": "not a reservation"}
		}},
		"Unserved": {reason: "The API server does not serve TenantConfigs.", breakAPI: func(s *tenantAPI) { s.err = errors.New("not served") }},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api := &tenantAPI{configAPI: configAPI{pages: map[string]map[string]string{"a": {"vlan/ens4/15": "1000 red/good " + token}}}}
			const unconfirmed = 250
			for i := range unconfirmed {
				api.add(fmt.Sprintf("unconfirmed-%03d", i), 1001+i, otherToken)
			}
			api.add("good", 1000, token)
			read := map[string]bool{}
			c := New(&kubeclient.Connection{Direct: api}, logr.Discard(), Options{
				OnRead: func(obj client.Object, _ *network.Network, _ error) { read[obj.GetName()] = true },
			})
			// An earlier read of the TenantConfigs has the reservation of the network good.
			if ok, err := c.reservations.confirm(t.Context(), withAssignment("good", "vlan/ens4/1000 "+token), metav1.Now().Time); !ok || err != nil {
				t.Fatalf("confirm: %v, %v", ok, err)
			}
			tc.breakAPI(api)
			if err := c.loadAll(t.Context()); err != nil {
				t.Fatalf("%s\nloadAll: %v", tc.reason, err)
			}
			if nets := c.List(); len(nets) != 1 || nets[0].Ref.Name != "good" || network.CheckAssignment(nets[0]) != nil {
				t.Errorf("%s\nnetworks: got %v, want the network good", tc.reason, nets)
			}
			if c.queue.Len() != unconfirmed || len(read) != unconfirmed+1 {
				t.Errorf("%s\n%d are queued again and %d were read, want %d and %d", tc.reason, c.queue.Len(), len(read), unconfirmed, unconfirmed+1)
			}
			if tc.lists != 0 && api.lists != tc.lists {
				t.Errorf("%s\n%d lists of TenantConfigs, want %d", tc.reason, api.lists, tc.lists)
			}
		})
	}
}

// loadAll fails when the list of networks fails.
func TestLoadAllNeedsNetworks(t *testing.T) {
	t.Parallel()
	unreachable := errors.New("unreachable")
	c := New(&kubeclient.Connection{Direct: failingClient{err: unreachable}}, logr.Discard(), Options{})
	if err := c.loadAll(t.Context()); !errors.Is(err, unreachable) {
		t.Errorf("loadAll: got %v, want %v", err, unreachable)
	}
}

// pagedAPI is an API server that lists ClusterNetworks in pages of JSON.
type pagedAPI struct {
	client.Client

	pages []string
}

// List implements client.Client.
func (p pagedAPI) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	into, ok := list.(*v1.ClusterNetworkList)
	if !ok {
		return nil
	}
	var lo client.ListOptions
	lo.ApplyOptions(opts)
	page, _ := strconv.Atoi(lo.Continue)
	err := json.Unmarshal([]byte(p.pages[page]), into)
	into.Continue = ""
	if page++; page < len(p.pages) {
		into.Continue = strconv.Itoa(page)
	}
	return err
}

// A field that a network lacks is not filled from the network in the same position of the previous
// page.
func TestPagesShareNoFields(t *testing.T) {
	t.Parallel()
	api := pagedAPI{pages: []string{
		`{"items": [{"metadata": {"name": "a", "labels": {"x": "y"}}, "spec": {"NetworkID": "a", "AllowedTenants": ["q"], "Options": {"vlan": 5}}}]}`,
		`{"items": [{"metadata": {"name": "b"}, "spec": {"NetworkID": "b"}}]}`,
	}}
	got := map[string]*v1.ClusterNetwork{}
	c := New(&kubeclient.Connection{Direct: api}, logr.Discard(), Options{OnRead: func(obj client.Object, _ *network.Network, _ error) {
		got[obj.GetName()], _ = obj.(*v1.ClusterNetwork)
	}})
	if err := c.ReadAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := map[string]*v1.ClusterNetwork{
		"a": {
			ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"x": "y"}},
			Spec:       v1.NetworkSpec{NetworkID: "a", AllowedTenants: []string{"q"}, Options: v1.NetworkOptions{VLAN: 5}},
		},
		"b": {ObjectMeta: metav1.ObjectMeta{Name: "b"}, Spec: v1.NetworkSpec{NetworkID: "b"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("networks (-want +got):\n%s", diff)
	}
}
