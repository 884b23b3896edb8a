// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"errors"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/kube"
	"github.com/patchbay-cni/patchbay/internal/network"
)

func withName(name string, n network.Network) *network.Network {
	n.Ref = network.Ref{Kind: v1.KindDanmNet, Namespace: "ns", Name: name}
	n.Generation, n.UID = 1, name
	return &n
}

// Of two conflicting networks that are created at the same moment, the second one is rejected,
// until the first one was read or was not stored in time.
func TestAdmitAtOnce(t *testing.T) {
	t.Parallel()
	older := withName("older", network.Network{ID: "a", Type: "ipvlan", Device: "ens4", VLAN: 5})
	younger := withName("younger", network.Network{ID: "b", Type: "macvlan", Device: "ens4", VLAN: 5})
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	stored := func(c *networkIndex, n *network.Network, v kube.SpecVersion) {
		came := *n
		came.Created = now
		c.put(n.Ref, storedNetwork{ParsedNetwork: kube.ParsedNetwork{Version: v, Network: &came}})
	}
	cases := map[string]struct {
		reason  string
		between func(c *networkIndex) time.Duration
		dryRun  bool
		want    error
		message string
	}{
		"AtOnce": {reason: "Neither is stored.", between: func(*networkIndex) time.Duration { return 0 }, want: network.ErrParentShared, message: "at this moment"},
		"Stored": {reason: "The first one was read.", between: func(c *networkIndex) time.Duration {
			stored(c, older, kube.SpecVersion{UID: "older", Generation: 1})
			return time.Hour
		}, want: network.ErrParentShared, message: "DanmNet/ns/older"},
		"Gone": {reason: "The first one was deleted again.", between: func(c *networkIndex) time.Duration {
			stored(c, older, kube.SpecVersion{UID: "older", Generation: 1})
			c.remove(older.Ref)
			return time.Second
		}},
		"NotStored": {reason: "The creation failed after this webhook.", between: func(*networkIndex) time.Duration { return inFlightTimeout }},
		"DryRun":    {reason: "A dry run stores nothing.", dryRun: true, between: func(*networkIndex) time.Duration { return 0 }},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newNetworkIndex()
			if err := c.admit(nil, older, tc.dryRun, now); err != nil {
				t.Fatal(err)
			}
			later := now.Add(tc.between(c))
			err := c.admit(nil, younger, false, later)
			if !errors.Is(err, tc.want) || err != nil && !strings.Contains(err.Error(), tc.message) {
				t.Errorf("%s\nadmit: got %v, want %v with %q", tc.reason, err, tc.want, tc.message)
			}
			if err := c.admit(nil, older, false, later); (err == nil) != (tc.want != nil) {
				t.Errorf("%s\nadmit the first again: got %v", tc.reason, err)
			}
		})
	}
}

// An admitted change stays in flight when the previous version is read again.
func TestAdmitChange(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	c := newNetworkIndex()
	before := withName("a", network.Network{ID: "a", Type: "ipvlan", Device: "ens4", VLAN: 5})
	model := kube.ParsedNetwork{Version: kube.SpecVersion{UID: "a", Generation: 1}, Network: before}
	c.put(before.Ref, storedNetwork{ParsedNetwork: model})
	after := withName("a", network.Network{ID: "a", Type: "ipvlan", Device: "ens4", VLAN: 6})
	after.Generation = 2
	if err := c.admit(before, after, false, now); err != nil {
		t.Fatal(err)
	}
	c.put(before.Ref, storedNetwork{ParsedNetwork: model}) // an old version
	other := withName("b", network.Network{ID: "b", Type: "macvlan", Device: "ens4", VLAN: 6})
	if err := c.admit(nil, other, false, now); !errors.Is(err, network.ErrParentShared) {
		t.Errorf("admit in conflict with a change that is not stored: got %v", err)
	}
	c.put(before.Ref, storedNetwork{ParsedNetwork: kube.ParsedNetwork{Version: kube.SpecVersion{UID: "a", Generation: 2}, Network: after}})
	if len(c.inFlight.byRef) != 0 {
		t.Errorf("in flight after it was read: %v", c.inFlight.byRef)
	}
}

// The contenders of a network suffice: a network conflicts with them exactly when it conflicts with
// any network, and with the same message.
func TestContendersAreEnough(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string) *network.Network {
			n := withName(name, network.Network{
				ID:     rapid.SampledFrom([]string{"a", "b", "eth"}).Draw(t, "id"),
				Type:   rapid.SampledFrom([]string{"ipvlan", "macvlan", "sriov", "bridge"}).Draw(t, "type"),
				Device: rapid.SampledFrom([]string{"ens4", "a.1", "vx_a", "eth.2"}).Draw(t, "device"),
			})
			n.Created = time.Unix(int64(rapid.IntRange(1, 3).Draw(t, "age")), 0)
			switch id := rapid.IntRange(1, 2).Draw(t, "number"); rapid.IntRange(0, 2).Draw(t, "wire") {
			case 1:
				n.VLAN = id
			case 2:
				n.VXLAN = id
			}
			return n
		}
		x := newConflictIndex()
		var all []*network.Network
		for i := range rapid.IntRange(0, 6).Draw(t, "networks") {
			n := draw(string(rune('a' + i)))
			// Networks in a conflict are not admitted.
			if network.CheckConflict(withoutCreationTime(n), all) == nil {
				all = append(all, n)
				x.add(n)
			}
		}
		n := withoutCreationTime(draw("new"))
		want, got := network.CheckConflict(n, all), network.CheckConflict(n, x.contenders(n))
		if (want == nil) != (got == nil) {
			t.Fatalf("conflict of %+v: with all %v, with its contenders %v", n, want, got)
		}
		for _, o := range all {
			x.remove(o)
		}
		if len(x.slots)+len(x.links)+len(x.devices) != 0 {
			t.Fatalf("left: %+v", x)
		}
	})
}

// An admitted network is in the index once a watch has seen it, without a read, unless it may be
// another one.
func TestConfirmStored(t *testing.T) {
	t.Parallel()
	now, created := time.Date(2026, 1, 1, 0, 0, 1, 500, time.UTC), time.Date(2026, 1, 1, 0, 0, 1, 0, time.UTC)
	cases := map[string]struct {
		reason  string
		version kube.SpecVersion
		want    bool
	}{
		"Same":     {"It is the admitted network.", kube.SpecVersion{UID: "a", Generation: 1}, true},
		"Other":    {"Another creation of that name was stored first.", kube.SpecVersion{UID: "b", Generation: 1}, false},
		"Changed":  {"Its spec has changed since.", kube.SpecVersion{UID: "a", Generation: 2}, false},
		"Deleting": {"The parsed network must be in deletion too.", kube.SpecVersion{UID: "a", Generation: 1, Deleting: true}, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newNetworkIndex()
			n := withName("a", network.Network{ID: "a", Type: "ipvlan", Device: "ens4", VLAN: 5})
			if err := c.admit(nil, n, false, now); err != nil {
				t.Fatal(err)
			}
			if got := c.confirmStored(n.Ref, tc.version, created); got != tc.want {
				t.Errorf("%s\nconfirmStored: got %v", tc.reason, got)
			}
			m, known := c.get(n.Ref)
			if known != tc.want || known && (!m.Network.Created.Equal(created) || len(c.inFlight.byRef) != 0) {
				t.Errorf("%s\nknown %v: %+v, in flight %v", tc.reason, known, m, c.inFlight.byRef)
			}
		})
	}
}
