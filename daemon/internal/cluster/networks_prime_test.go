// SPDX-License-Identifier: Apache-2.0

package cluster

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
	"github.com/patchbay-cni/patchbay/internal/network"
)

// stored is an API server with TenantNetworks and TenantConfigs.
type stored struct {
	configs

	networks []v1.TenantNetwork
}

// List implements client.Client.
func (s *stored) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	switch into := list.(type) {
	case *v1.TenantNetworkList:
		into.Items = s.networks
	case *v1.TenantConfigList:
		return s.configs.List(ctx, list, opts...)
	}
	return nil
}

// add stores a network of namespace red on a VLAN, with an assignment.
func (s *stored) add(name string, vlan int, token string) {
	assignment := network.Assignment{Slot: network.TenantSlot{Kind: network.SlotVLAN, Device: "ens4", ID: vlan}, Token: token}
	s.networks = append(s.networks, v1.TenantNetwork{
		ObjectMeta: metav1.ObjectMeta{Namespace: "red", Name: name, UID: "u", Annotations: map[string]string{
			v1.AssignedAnnotation: assignment.String(),
		}},
		Spec: v1.NetworkSpec{NetworkID: "net", Options: v1.NetworkOptions{Device: "ens4", VLAN: int32(vlan)}},
	})
}

// What nobody can confirm keeps no node from the other networks, costs no list of its
// own, and is tried again.
func TestPrimeGoesOn(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		harm   func(*stored)
		// lists of TenantConfigs; 0 is any number.
		lists int
	}{
		"Damaged": {reason: "Somebody edited the status of a TenantConfig.", lists: 2, harm: func(s *stored) {
			s.pages["damaged"] = map[string]string{"vlan/ens4/15": "what is this"}
		}},
		"Away": {reason: "TenantConfigs are not served.", harm: func(s *stored) { s.away = errors.New("away") }},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api := &stored{configs: configs{pages: map[string]map[string]string{"a": {"vlan/ens4/15": "1000 red/good " + token}}}}
			const lost = 250
			for i := range lost {
				api.add(fmt.Sprintf("lost-%03d", i), 1001+i, other)
			}
			api.add("good", 1000, token)
			read := map[string]bool{}
			n := NewNetworkCache(&Connection{Direct: api}, logr.Discard(), NetworkCacheOptions{
				OnRead: func(obj client.Object, _ *network.Network, _ error) { read[obj.GetName()] = true },
			})
			// A former read knows what the good one has.
			if ok, err := n.reservations.confirm(t.Context(), assigned("good", "vlan/ens4/1000 "+token), metav1.Now().Time); !ok || err != nil {
				t.Fatalf("confirm: %v, %v", ok, err)
			}
			tc.harm(api)
			if err := n.loadAll(t.Context()); err != nil {
				t.Fatalf("%s\nprime: %v", tc.reason, err)
			}
			if nets := n.List(); len(nets) != 1 || nets[0].Ref.Name != "good" || nets[0].CheckAssignment() != nil {
				t.Errorf("%s\nnetworks: got %v, want the good one", tc.reason, nets)
			}
			if n.queue.Len() != lost || len(read) != lost+1 {
				t.Errorf("%s\n%d are tried again and %d were looked at, want %d and %d", tc.reason, n.queue.Len(), len(read), lost, lost+1)
			}
			if tc.lists != 0 && api.lists != tc.lists {
				t.Errorf("%s\n%d lists of TenantConfigs, want %d", tc.reason, api.lists, tc.lists)
			}
		})
	}
}

// A list of networks that fails is another matter: nothing is known then.
func TestPrimeNeedsTheNetworks(t *testing.T) {
	t.Parallel()
	away := errors.New("away")
	n := NewNetworkCache(&Connection{Direct: refusing{err: away}}, logr.Discard(), NetworkCacheOptions{})
	if err := n.loadAll(t.Context()); !errors.Is(err, away) {
		t.Errorf("prime: got %v, want %v", err, away)
	}
}

// paged is an API server that sends a page of ClusterNetworks at a time, as JSON.
type paged struct {
	client.Client

	pages []string
}

// List implements client.Client.
func (p paged) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
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

// What a network has not is not what the one before had, in the same place of its page.
func TestPagesAreFresh(t *testing.T) {
	t.Parallel()
	api := paged{pages: []string{
		`{"items": [{"metadata": {"name": "a", "labels": {"x": "y"}}, "spec": {"NetworkID": "a", "AllowedTenants": ["q"], "Options": {"vlan": 5}}}]}`,
		`{"items": [{"metadata": {"name": "b"}, "spec": {"NetworkID": "b"}}]}`,
	}}
	got := map[string]*v1.ClusterNetwork{}
	n := NewNetworkCache(&Connection{Direct: api}, logr.Discard(), NetworkCacheOptions{OnRead: func(obj client.Object, _ *network.Network, _ error) {
		got[obj.GetName()], _ = obj.(*v1.ClusterNetwork)
	}})
	if err := n.ReadAll(t.Context()); err != nil {
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
		t.Errorf("read: -want +got\n%s", diff)
	}
}

// refusing is an API server that lists nothing.
type refusing struct {
	client.Client
	err error
}

// List implements client.Client.
func (r refusing) List(context.Context, client.ObjectList, ...client.ListOption) error { return r.err }
