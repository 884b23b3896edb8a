// SPDX-License-Identifier: Apache-2.0

package cluster

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
	"github.com/patchbay-cni/patchbay/internal/network"
)

// configs is an API server with TenantConfigs by name, and their reservations.
type configs struct {
	client.Client
	mu    sync.Mutex
	pages map[string]map[string]string
	away  error
	lists int
}

// List implements client.Client.
func (c *configs) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lists++
	into, ok := list.(*v1.TenantConfigList)
	if !ok {
		return errors.New("want a list of TenantConfigs")
	}
	for name, pages := range c.pages {
		tc := v1.TenantConfig{ObjectMeta: metav1.ObjectMeta{Name: name}}
		tc.Status.Reservations = pages
		into.Items = append(into.Items, tc)
	}
	return c.away
}

const (
	token = "0123456789abcdef"
	other = "fedcba9876543210"
)

// assigned is a network of namespace red that says what it was assigned.
func assigned(name, text string) *network.Network {
	return &network.Network{Ref: network.Ref{Kind: v1.KindTenantNetwork, Namespace: "red", Name: name}, Assignment: text}
}

// What a tenant wrote on its network is worth what a TenantConfig says.
func TestAssignmentsAreConfirmed(t *testing.T) {
	t.Parallel()
	api := &configs{pages: map[string]map[string]string{
		"a": {"vlan/ens4/15": "1000 red/net " + token},
		"b": {"vxlan/ens5/0": "7 red/gen-* " + other},
	}}
	cases := map[string]struct {
		reason string
		net    *network.Network
		want   bool
	}{
		"None":      {"a network without an assignment has nothing to confirm", assigned("net", ""), true},
		"Reserved":  {"it has what it says", assigned("net", "vlan/ens4/1000 "+token), true},
		"Generated": {"the name was not known when the ID was reserved", assigned("gen-x7f2p", "vxlan/ens5/7 "+other), true},
		"Unparsed":  {"Network.Assigned says so better", assigned("net", "what I like"), true},
		"MadeUp":    {"nobody reserved anything", assigned("net", "vlan/ens4/1000 aaaaaaaaaaaaaaaa"), false},
		"Moved":     {"another place with a token of its own", assigned("net", "vlan/ens4/1001 "+token), false},
		"Copied":    {"a second network on the first one's token", assigned("net2", "vlan/ens4/1000 "+token), false},
		"NotPrefix": {"only a name that begins so was generated", assigned("net", "vxlan/ens5/7 "+other), false},
	}
	r := &reservationCache{conn: &Connection{Direct: api}}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got, err := r.confirm(t.Context(), tc.net, time.Now()); err != nil || got != tc.want {
				t.Errorf("%s: got %v, %v", tc.reason, got, err)
			}
		})
	}
	foreign := assigned("net", "vlan/ens4/1000 "+token)
	foreign.Ref.Namespace = "blue"
	if got, err := r.confirm(t.Context(), foreign, time.Now()); err != nil || got {
		t.Errorf("another namespace's token: got %v, %v", got, err)
	}
}

// A thousand networks that are read again need one list, and one that nobody knows
// has the TenantConfigs read again: its reservation may be new.
func TestReservationsAreReadWhenNeeded(t *testing.T) {
	t.Parallel()
	api := &configs{pages: map[string]map[string]string{"a": {"vlan/ens4/15": "1000 red/net " + token}}}
	r := &reservationCache{conn: &Connection{Direct: api}}
	for range 1000 {
		if ok, err := r.confirm(t.Context(), assigned("net", "vlan/ens4/1000 "+token), time.Now()); !ok || err != nil {
			t.Fatalf("confirm: %v, %v", ok, err)
		}
	}
	if api.lists != 1 {
		t.Errorf("%d lists, want 1", api.lists)
	}
	late := assigned("late", "vlan/ens4/1001 "+other)
	if ok, err := r.confirm(t.Context(), late, time.Now()); ok || err != nil {
		t.Errorf("before it was reserved: %v, %v", ok, err)
	}
	api.pages["a"]["vlan/ens4/15"] += ", 1001 red/late " + other
	if ok, err := r.confirm(t.Context(), late, time.Now()); !ok || err != nil {
		t.Errorf("once it was reserved: %v, %v", ok, err)
	}
}

// Without an answer nothing is believed and nothing refused for good.
func TestReservationsAreAway(t *testing.T) {
	t.Parallel()
	away := errors.New("away")
	api := &configs{away: away, pages: map[string]map[string]string{}}
	r := &reservationCache{conn: &Connection{Direct: api}}
	net := assigned("net", "vlan/ens4/1000 "+token)
	if ok, err := r.confirm(t.Context(), net, time.Now()); ok || !errors.Is(err, away) {
		t.Errorf("got %v, %v", ok, err)
	}
	api.away = nil
	api.pages["a"] = map[string]string{"vlan/ens4/15": "1000 red/net " + token}
	api.pages["damaged"] = map[string]string{"vlan/ens4/15": "what is this"}
	if ok, err := r.confirm(t.Context(), net, time.Now()); !ok || err != nil {
		t.Errorf("beside a damaged TenantConfig: %v, %v", ok, err)
	}
	ok, err := r.confirm(t.Context(), assigned("late", "vlan/ens4/1001 "+other), time.Now())
	if ok || err == nil || !strings.Contains(err.Error(), "TenantConfig damaged") {
		t.Errorf("which may be in the damaged one: %v, %v", ok, err)
	}
}

// Networks that were read before the TenantConfigs need no other list: what is reserved
// is, before there is a network. One read later does.
func TestReservationsServeWhoWasReadBefore(t *testing.T) {
	t.Parallel()
	api := &configs{pages: map[string]map[string]string{"damaged": {"vlan/ens4/15": "what is this"}}}
	r := &reservationCache{conn: &Connection{Direct: api}}
	read := time.Now()
	for range 100 {
		ok, err := r.confirm(t.Context(), assigned("net", "vlan/ens4/1000 "+token), read)
		if ok || err == nil || !strings.Contains(err.Error(), "TenantConfig damaged") {
			t.Fatalf("which may be in the damaged one: %v, %v", ok, err)
		}
	}
	if api.lists != 1 {
		t.Errorf("%d lists, want 1", api.lists)
	}
	api.pages["damaged"]["vlan/ens4/15"] = "1000 red/net " + token
	if ok, err := r.confirm(t.Context(), assigned("net", "vlan/ens4/1000 "+token), time.Now()); !ok || err != nil {
		t.Errorf("once it is mended: %v, %v", ok, err)
	}
}
