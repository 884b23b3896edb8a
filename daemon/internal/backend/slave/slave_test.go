// SPDX-License-Identifier: Apache-2.0

package slave_test

import (
	"context"
	"errors"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
	"github.com/patchbay-cni/patchbay/daemon/internal/backend/slave"
	"github.com/patchbay-cni/patchbay/daemon/internal/firewall"
	"github.com/patchbay-cni/patchbay/daemon/internal/kernel"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/netwatcher"
)

// recorder keeps what it was requests for and answers with err.
type recorder struct {
	requests []kernel.Slave
	err      error
}

func (r *recorder) Attach(_ context.Context, s *kernel.Slave) (kernel.AttachResult, error) {
	r.requests = append(r.requests, *s)
	return kernel.AttachResult{Index: 7, MAC: "02:00:00:00:00:01", MTU: 1450}, r.err
}

func (r *recorder) Detach(_ context.Context, s *kernel.Slave) error {
	r.requests = append(r.requests, *s)
	return r.err
}

// sources keeps what is permitted, by name; err is the answer to Permit.
type sources struct {
	permitted map[string]firewall.Source
	strict    bool
	err       error
}

func (s *sources) Permit(name string, source firewall.Source, strict bool) error {
	if s.permitted == nil {
		s.permitted = map[string]firewall.Source{}
	}
	s.permitted[name], s.strict = source, strict
	return s.err
}

func (s *sources) Revoke(link, name string) {
	if s.permitted[name].Link == link {
		delete(s.permitted, name)
	}
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
		PodInterface: kernel.PodInterface{
			Netns:        "/var/run/netns/x",
			Name:         "net1",
			Owner:        "ClusterNetwork/storage",
			V4:           netip.MustParsePrefix("10.50.0.9/24"),
			Routes:       []network.Route{route("10.51.0.0/16", "10.50.0.1"), route("fd01::/64", "fd00::1")},
			Table:        200,
			PolicyRoutes: []network.Route{route("10.52.0.0/16", "10.50.0.1")},
		},
		Parent: "storage.500",
		MTU:    1400,
	}
	cases := map[string]struct {
		reason     string
		backend    func(slave.Kernel, slave.SourceGuard) *slave.Backend
		kind, mode string
	}{
		"IPVLAN":  {"Mode l2 switches frames between slaves.", slave.NewIPVLAN, "ipvlan", "l2"},
		"MACVLAN": {"Mode bridge lets slaves of one parent reach each other.", slave.NewMACVLAN, "macvlan", "bridge"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := &recorder{}
			rec, ifc := example()
			g := &sources{}
			b := tc.backend(r, g)
			if err := errors.Join(b.Attach(t.Context(), rec, ifc), b.Detach(t.Context(), rec, ifc)); err != nil {
				t.Fatal(err)
			}
			want := want
			want.Kind, want.Mode = tc.kind, tc.mode
			if mac := r.requests[0].MAC; (mac != nil) != (tc.kind == kernel.MACVLAN) {
				t.Errorf("%s is requested with MAC %v", name, mac)
			}
			r.requests[0].MAC = nil // random
			if len(g.permitted) > 0 {
				t.Errorf("left behind: %v", g.permitted)
			}
			ips := cmpopts.EquateComparable(netip.Prefix{}, netip.Addr{})
			if diff := cmp.Diff([]kernel.Slave{want, want}, r.requests, ips); diff != "" {
				t.Errorf("%s DEL must name the same link as ADD: -want +got\n%s", tc.reason, diff)
			}
			if ifc.MAC != "02:00:00:00:00:01" || ifc.MTU != 1450 {
				t.Errorf("MAC or MTU are not in the record: %+v", ifc)
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
		"ParentMissing": {"Netwatcher creates the link again.", kernel.ErrParentMissing, true},
		"ParentBusy":    {"Waiting does not remove slaves of another kind.", kernel.ErrParentBusy, false},
		"AddressTaken":  {"Waiting does not free the address.", kernel.ErrAddressTaken, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rec, ifc := example()
			err := slave.NewMACVLAN(&recorder{err: tc.err}, &sources{}).Attach(t.Context(), rec, ifc)
			if !errors.Is(err, tc.err) {
				t.Errorf("got %v, want it to wrap %v", err, tc.err)
			}
			if errors.Is(err, attach.ErrTryAgain) != tc.again {
				t.Errorf("%s got %v", tc.reason, err)
			}
			if ifc.MAC != "" {
				t.Errorf("a failed attachment left MAC %s in the record", ifc.MAC)
			}
		})
	}
}

// The source is permitted before the slave is created, and revoked if the slave is not created.
func TestSourceOfSlave(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason         string
		refused, fails error
		want           bool
	}{
		"Attached": {reason: "The slave's frames pass.", want: true},
		"Refused":  {reason: "A slave that could not send is not created.", refused: netwatcher.ErrSourceGuardUnsupported},
		"Failed":   {reason: "Without a slave nothing is permitted.", fails: kernel.ErrParentMissing},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rec, ifc := example()
			rec.ContainerID, rec.IfName, ifc.Network.SourceGuardSet, ifc.Network.Type = "sandbox", "eth0", true, "macvlan"
			g, r := &sources{err: tc.refused}, &recorder{err: tc.fails}
			err := slave.NewMACVLAN(r, g).Attach(t.Context(), rec, ifc)
			if !errors.Is(err, errors.Join(tc.refused, tc.fails)) && (err != nil) == tc.want {
				t.Fatalf("%s got %v", tc.reason, err)
			}
			if tc.refused != nil {
				if len(r.requests) > 0 || !errors.Is(err, attach.ErrTryAgain) {
					t.Errorf("%s got %v, the kernel was requests for %v", tc.reason, err, r.requests)
				}
				return
			}
			s, ok := g.permitted["sandbox/eth0/net1"]
			if ok != tc.want || !g.strict {
				t.Fatalf("%s permitted %v, strict %v", tc.reason, g.permitted, g.strict)
			}
			if !ok {
				return
			}
			if s.Link != "storage.500" || s.MAC.String() != r.requests[0].MAC.String() || s.V4 != ifc.V4.Addr() || s.V6.IsValid() || s.Pod != "sandbox" {
				t.Errorf("%s got %+v for slave %+v", tc.reason, s, r.requests[0])
			}
			rec.Interfaces = []attach.Interface{*ifc}
			got := slave.RecordedSources([]*attach.Record{rec})["sandbox/eth0/net1"]
			if got.MAC.String() != ifc.MAC || got.Link != s.Link || got.V4 != s.V4 || got.Pod != s.Pod {
				t.Errorf("the journal gives %+v", got)
			}
			rec.State = attach.Released
			if got := slave.RecordedSources([]*attach.Record{rec}); len(got) > 0 {
				t.Errorf("a released Pod has %v", got)
			}
		})
	}
}

func TestDetachError(t *testing.T) {
	t.Parallel()
	rec, ifc := example()
	if err := slave.NewMACVLAN(&recorder{err: kernel.ErrNameTaken}, &sources{}).Detach(t.Context(), rec, ifc); !errors.Is(err, kernel.ErrNameTaken) {
		t.Errorf("got %v, want the kernel's error", err)
	}
}
