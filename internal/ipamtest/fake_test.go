// SPDX-License-Identifier: Apache-2.0

package ipamtest_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/ipamtest"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam/allocator"
	"github.com/patchbay-cni/patchbay/ipam/status"
)

// harness makes the fake look like a cluster.
type harness struct{ *ipamtest.Fake }

func (h harness) Store() allocator.Store { return h.Fake }

func (h harness) Create(_ *testing.T, ref network.Ref, cidr string) *network.Network {
	return h.Fake.Create(&network.Network{Ref: ref, V4: &network.Subnet{CIDR: netip.MustParsePrefix(cidr)}})
}

func (h harness) Delete(_ *testing.T, ref network.Ref) { h.Fake.Delete(ref) }

func (h harness) AddEndpoint(_ *testing.T, ref network.Ref, ep status.Endpoint) {
	h.Fake.AddEndpoint(ref, ep)
}

func TestFakeConforms(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{v1.KindClusterNetwork, v1.KindDanmNet} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			ipamtest.Run(t, kind, func(*testing.T) ipamtest.Harness { return harness{ipamtest.NewFake()} })
		})
	}
}

func TestCoveredFinds(t *testing.T) {
	t.Parallel()
	bitmap := &v1.AddressBitmap{CIDR: "10.0.0.0/24", Pages: map[string]string{"0": "Ag" + strings.Repeat("A", 169) + "="}}
	held := func(text string) v1.HeldAddresses { return v1.HeldAddresses{V4: text} }
	ep := status.Endpoint{NetworkUID: "u", Node: "n1", V4: netip.MustParseAddr("10.0.0.1")}
	cases := map[string]struct {
		reason string
		held   map[string]v1.HeldAddresses
		eps    []status.Endpoint
		want   string
	}{
		"Entry":        {"covered by an entry", map[string]v1.HeldAddresses{"n1": held("10.0.0.1")}, nil, ""},
		"DanmEp":       {"covered by a DanmEp", nil, []status.Endpoint{ep}, ""},
		"Both":         {"by both of one node", map[string]v1.HeldAddresses{"n1": held("10.0.0.1")}, []status.Endpoint{ep}, ""},
		"Nobody":       {"a bit without an owner", nil, nil, "the address is not covered"},
		"FormerDanmEp": {"a DanmEp of a former network", nil, []status.Endpoint{{NetworkUID: "x", V4: ep.V4}}, "the address is not covered"},
		"TwoNodes":     {"an address of two nodes", map[string]v1.HeldAddresses{"n2": held("10.0.0.1")}, []status.Endpoint{ep}, "nodes"},
		"NoBit":        {"an entry without its bit", map[string]v1.HeldAddresses{"n1": held("10.0.0.1-10.0.0.2")}, nil, "10.0.0.2 is covered by node \"n1\", but its bit is not set"},
		"Unreadable":   {"an entry that is no text", map[string]v1.HeldAddresses{"n1": held("?")}, []status.Endpoint{ep}, "parse range"},
		"Endless":      {"an entry of everything", map[string]v1.HeldAddresses{"n1": held("10.0.0.0-10.255.255.255")}, []status.Endpoint{ep}, "16777216"},
	}
	for name, tc := range cases {
		err := ipamtest.Covered(&status.Object{UID: "u", IPAM: &v1.IPAMStatus{V4: bitmap, Held: tc.held}}, tc.eps)
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %s: got %v, want %q", name, tc.reason, err, tc.want)
		}
	}
}

// The faults do what they say, or tests that rely on them prove nothing.
func TestFaulty(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		fault   ipamtest.Fault
		want    error
		applied bool
		later   bool
	}{
		"Fine":        {ipamtest.Fault{}, nil, true, true},
		"Conflict":    {ipamtest.Fault{Kind: ipamtest.Conflict}, status.ErrConflict, false, false},
		"LostRequest": {ipamtest.Fault{Kind: ipamtest.LostRequest}, ipamtest.ErrFault, false, false},
		"LostReply":   {ipamtest.Fault{Kind: ipamtest.LostReply}, ipamtest.ErrFault, true, true},
		"Late":        {ipamtest.Fault{Kind: ipamtest.Late, Delay: 50 * time.Millisecond}, ipamtest.ErrFault, false, true},
	}
	for name, tc := range cases {
		synctest.Test(t, func(t *testing.T) { // where a late write is later for sure
			fake := ipamtest.NewFake()
			net := fake.Create(&network.Network{Ref: network.Ref{Kind: v1.KindClusterNetwork, Name: "n"}})
			faulty := &ipamtest.Faulty{Store: fake, Next: func(op ipamtest.Op) ipamtest.Fault {
				if op == ipamtest.OpUpdate {
					return tc.fault
				}
				return ipamtest.Fault{}
			}}
			o, err := faulty.Get(t.Context(), net.Ref)
			if err != nil {
				t.Fatal(err)
			}
			o.IPAM = &v1.IPAMStatus{}
			if _, err := faulty.Update(t.Context(), o); !errors.Is(err, tc.want) {
				t.Errorf("%s: Update() = %v, want %v", name, err, tc.want)
			}
			if got := fake.Object(net.Ref).IPAM != nil; got != tc.applied {
				t.Errorf("%s: applied %v, want %v", name, got, tc.applied)
			}
			faulty.Wait()
			if got := fake.Object(net.Ref).IPAM != nil; got != tc.later {
				t.Errorf("%s: applied in the end %v, want %v", name, got, tc.later)
			}
		})
	}
}
