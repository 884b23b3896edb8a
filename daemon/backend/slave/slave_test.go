// SPDX-License-Identifier: Apache-2.0

package slave_test

import (
	"context"
	"errors"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/patchbay-cni/patchbay/daemon/attach"
	"github.com/patchbay-cni/patchbay/daemon/backend/ipvlan"
	"github.com/patchbay-cni/patchbay/daemon/backend/macvlan"
	"github.com/patchbay-cni/patchbay/daemon/backend/slave"
	"github.com/patchbay-cni/patchbay/daemon/kernel"
	"github.com/patchbay-cni/patchbay/network"
)

// recorder keeps what it was asked for and answers with err.
type recorder struct {
	asked []kernel.Slave
	err   error
}

func (r *recorder) Attach(_ context.Context, s *kernel.Slave) (kernel.Outcome, error) {
	r.asked = append(r.asked, *s)
	return kernel.Outcome{Index: 7, MAC: "02:00:00:00:00:01", MTU: 1450}, r.err
}

func (r *recorder) Detach(_ context.Context, s *kernel.Slave) error {
	r.asked = append(r.asked, *s)
	return r.err
}

func route(dst, gw string) network.Route {
	return network.Route{Dst: netip.MustParsePrefix(dst), Gateway: netip.MustParseAddr(gw)}
}

func example() (*attach.Record, *attach.Interface) {
	return &attach.Record{Netns: "/var/run/netns/x"}, &attach.Interface{
		Name:    "net1",
		Parent:  "storage.500",
		V4:      netip.MustParsePrefix("10.50.0.9/24"),
		Proutes: []network.Route{route("10.52.0.0/16", "10.50.0.1")},
		Network: network.Network{
			Ref: network.Ref{Kind: "ClusterNetwork", Name: "storage"}, MTU: 1400, Table: 200,
			V4: &network.Subnet{Routes: []network.Route{route("10.51.0.0/16", "10.50.0.1")}},
			V6: &network.Subnet{Routes: []network.Route{route("fd01::/64", "fd00::1")}},
		},
	}
}

func TestSlaveOfInterface(t *testing.T) {
	t.Parallel()
	want := kernel.Slave{
		Netns: "/var/run/netns/x", Name: "net1", Parent: "storage.500", MTU: 1400,
		Owner: "ClusterNetwork/storage", V4: netip.MustParsePrefix("10.50.0.9/24"),
		Routes: []network.Route{route("10.51.0.0/16", "10.50.0.1"), route("fd01::/64", "fd00::1")},
		Table:  200, PolicyRoutes: []network.Route{route("10.52.0.0/16", "10.50.0.1")},
	}
	cases := map[string]struct {
		reason     string
		backend    func(slave.Kernel) *slave.Backend
		kind, mode string
	}{
		"IPVLAN":  {"slaves talk to each other at layer 2", ipvlan.New, "ipvlan", "l2"},
		"MACVLAN": {"slaves of one parent reach each other", macvlan.New, "macvlan", "bridge"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := &recorder{}
			rec, ifc := example()
			b := tc.backend(r)
			if err := errors.Join(b.Attach(t.Context(), rec, ifc), b.Detach(t.Context(), rec, ifc)); err != nil {
				t.Fatal(err)
			}
			want := want
			want.Kind, want.Mode = tc.kind, tc.mode
			ips := cmpopts.EquateComparable(netip.Prefix{}, netip.Addr{})
			if diff := cmp.Diff([]kernel.Slave{want, want}, r.asked, ips); diff != "" {
				t.Errorf("%s: DEL must name the same link as ADD: -want +got\n%s", tc.reason, diff)
			}
			if ifc.MAC != "02:00:00:00:00:01" || ifc.MTU != 1450 {
				t.Errorf("the outcome is not in the record: %+v", ifc)
			}
		})
	}
}

func TestAttachErrors(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		err    error
		again  bool
	}{
		"ParentMissing": {"netwatcher puts a link back", kernel.ErrParentMissing, true},
		"ParentBusy":    {"waiting does not help against another kind of slave", kernel.ErrParentBusy, false},
		"AddressTaken":  {"nor against somebody who has the address", kernel.ErrAddressTaken, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rec, ifc := example()
			err := macvlan.New(&recorder{err: tc.err}).Attach(t.Context(), rec, ifc)
			if !errors.Is(err, tc.err) {
				t.Errorf("got %v, want it to wrap %v", err, tc.err)
			}
			if errors.Is(err, attach.ErrTryAgain) != tc.again {
				t.Errorf("%s: got %v", tc.reason, err)
			}
			if ifc.MAC != "" {
				t.Errorf("a failed attachment left MAC %s in the record", ifc.MAC)
			}
		})
	}
}

func TestDetachError(t *testing.T) {
	t.Parallel()
	rec, ifc := example()
	if err := macvlan.New(&recorder{err: kernel.ErrNameTaken}).Detach(t.Context(), rec, ifc); !errors.Is(err, kernel.ErrNameTaken) {
		t.Errorf("got %v, want the kernel's error", err)
	}
}
