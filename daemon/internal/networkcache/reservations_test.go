// SPDX-License-Identifier: Apache-2.0

package networkcache

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/daemon/internal/kubeclient"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// configAPI is an API server with TenantConfigs.
type configAPI struct {
	client.Client
	mu sync.Mutex
	// pages has status.reservations by the name of the TenantConfig.
	pages map[string]map[string]string
	// err is the error of each list.
	err error
	// lists counts the lists.
	lists int
}

// List implements client.Client.
func (c *configAPI) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lists++
	into, ok := list.(*v1.TenantConfigList)
	if !ok {
		return errors.New("list must be of TenantConfigs")
	}
	for name, pages := range c.pages {
		tc := v1.TenantConfig{ObjectMeta: metav1.ObjectMeta{Name: name}}
		tc.Status.Reservations = pages
		into.Items = append(into.Items, tc)
	}
	return c.err
}

const (
	token      = "0123456789abcdef"
	otherToken = "fedcba9876543210"
)

// withAssignment returns a network of namespace red with that assignment.
func withAssignment(name, text string) *network.Network {
	return &network.Network{Ref: network.Ref{Kind: v1.KindTenantNetwork, Namespace: "red", Name: name}, Assignment: text}
}

// An assignment counts only if a TenantConfig has its reservation.
func TestConfirmAssignment(t *testing.T) {
	t.Parallel()
	api := &configAPI{pages: map[string]map[string]string{
		"a": {"vlan/ens4/15": "1000 red/net " + token},
		"b": {"vxlan/ens5/0": "7 red/gen-* " + otherToken},
	}}
	cases := map[string]struct {
		reason string
		net    *network.Network
		want   bool
	}{
		"None":      {"A network without an assignment needs no reservation.", withAssignment("net", ""), true},
		"Reserved":  {"The reservation has the same slot, token and network.", withAssignment("net", "vlan/ens4/1000 "+token), true},
		"Generated": {"The API server generated the name after the reservation.", withAssignment("gen-x7f2p", "vxlan/ens5/7 "+otherToken), true},
		"Unparsed":  {"CheckAssignment reports this error.", withAssignment("net", "not an assignment"), true},
		"NoToken":   {"No reservation has the token.", withAssignment("net", "vlan/ens4/1000 aaaaaaaaaaaaaaaa"), false},
		"OtherSlot": {"The reservation with the token has another slot.", withAssignment("net", "vlan/ens4/1001 "+token), false},
		"Copied":    {"The reservation with the token belongs to another network.", withAssignment("net2", "vlan/ens4/1000 "+token), false},
		"NotPrefix": {"A generated name begins with the prefix.", withAssignment("net", "vxlan/ens5/7 "+otherToken), false},
	}
	r := &reservationCache{conn: &kubeclient.Connection{Direct: api}}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got, err := r.confirm(t.Context(), tc.net, time.Now()); err != nil || got != tc.want {
				t.Errorf("%s: got %v and error %v, want %v", tc.reason, got, err, tc.want)
			}
		})
	}
	foreign := withAssignment("net", "vlan/ens4/1000 "+token)
	foreign.Ref.Namespace = "blue"
	if got, err := r.confirm(t.Context(), foreign, time.Now()); err != nil || got {
		t.Errorf("token of another namespace: got %v and error %v, want false", got, err)
	}
}

// A thousand confirmed networks need one list. An unknown token needs another list, because its
// reservation may be new.
func TestReservationsAreListedWhenNeeded(t *testing.T) {
	t.Parallel()
	api := &configAPI{pages: map[string]map[string]string{"a": {"vlan/ens4/15": "1000 red/net " + token}}}
	r := &reservationCache{conn: &kubeclient.Connection{Direct: api}}
	for range 1000 {
		if ok, err := r.confirm(t.Context(), withAssignment("net", "vlan/ens4/1000 "+token), time.Now()); !ok || err != nil {
			t.Fatalf("confirm: %v, %v", ok, err)
		}
	}
	if api.lists != 1 {
		t.Errorf("got %d lists, want 1", api.lists)
	}
	late := withAssignment("late", "vlan/ens4/1001 "+otherToken)
	if ok, err := r.confirm(t.Context(), late, time.Now()); ok || err != nil {
		t.Errorf("before the reservation: got %v and error %v, want false", ok, err)
	}
	api.pages["a"]["vlan/ens4/15"] += ", 1001 red/late " + otherToken
	if ok, err := r.confirm(t.Context(), late, time.Now()); !ok || err != nil {
		t.Errorf("after the reservation: got %v and error %v, want true", ok, err)
	}
}

// While TenantConfigs cannot be read, an assignment is neither confirmed nor rejected.
func TestReservationsUnavailable(t *testing.T) {
	t.Parallel()
	unavailable := errors.New("unavailable")
	api := &configAPI{err: unavailable, pages: map[string]map[string]string{}}
	r := &reservationCache{conn: &kubeclient.Connection{Direct: api}}
	net := withAssignment("net", "vlan/ens4/1000 "+token)
	if ok, err := r.confirm(t.Context(), net, time.Now()); ok || !errors.Is(err, unavailable) {
		t.Errorf("got %v and error %v, want %v", ok, err, unavailable)
	}
	api.err = nil
	api.pages["a"] = map[string]string{"vlan/ens4/15": "1000 red/net " + token}
	api.pages["invalid"] = map[string]string{"vlan/ens4/15": "not a reservation"}
	if ok, err := r.confirm(t.Context(), net, time.Now()); !ok || err != nil {
		t.Errorf("a reservation in another TenantConfig than the invalid one: got %v and error %v, want true", ok, err)
	}
	ok, err := r.confirm(t.Context(), withAssignment("late", "vlan/ens4/1001 "+otherToken), time.Now())
	if ok || err == nil || !strings.Contains(err.Error(), "TenantConfig invalid") {
		t.Errorf("a reservation that the invalid TenantConfig may have: got %v and error %v, want an error that names it", ok, err)
	}
}

// Networks that were read before the TenantConfigs need no further list, because a reservation
// exists before its network. A network that is read later needs one.
func TestReservationsServeNetworksReadBefore(t *testing.T) {
	t.Parallel()
	api := &configAPI{pages: map[string]map[string]string{"invalid": {"vlan/ens4/15": "not a reservation"}}}
	r := &reservationCache{conn: &kubeclient.Connection{Direct: api}}
	readAt := time.Now()
	for range 100 {
		ok, err := r.confirm(t.Context(), withAssignment("net", "vlan/ens4/1000 "+token), readAt)
		if ok || err == nil || !strings.Contains(err.Error(), "TenantConfig invalid") {
			t.Fatalf("a reservation that the invalid TenantConfig may have: got %v and error %v, want an error that names it", ok, err)
		}
	}
	if api.lists != 1 {
		t.Errorf("got %d lists, want 1", api.lists)
	}
	api.pages["invalid"]["vlan/ens4/15"] = "1000 red/net " + token
	if ok, err := r.confirm(t.Context(), withAssignment("net", "vlan/ens4/1000 "+token), time.Now()); !ok || err != nil {
		t.Errorf("after the repair: got %v and error %v, want true", ok, err)
	}
}
