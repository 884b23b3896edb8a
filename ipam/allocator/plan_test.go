// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam"
	"github.com/patchbay-cni/patchbay/ipam/status"
	"github.com/patchbay-cni/patchbay/test/random"
)

// planInputs are the values that a plan is made from.
type planInputs struct {
	snapshot snapshot
	local    localState
	claims   []*claim
}

// plan makes a plan of these values.
func (in *planInputs) plan() (*plan, error) { return makePlan(&in.snapshot, &in.local, in.claims) }

// clone returns equal values that share no memory.
func (in *planInputs) clone() planInputs {
	c := *in
	obj := *in.snapshot.obj
	obj.IPAM = obj.IPAM.DeepCopy()
	c.snapshot.obj = &obj
	c.snapshot.rollback.report = in.snapshot.rollback.report.DeepCopy()
	if found := in.snapshot.danmEps; found != nil {
		c.snapshot.danmEps = &danmEps{
			Owners: status.Owners{Mine: maps.Clone(found.Mine), Others: maps.Clone(found.Others)},
			live:   maps.Clone(found.live), publishedBefore: maps.Clone(found.publishedBefore),
		}
	}
	c.snapshot.nodeAddresses = slices.Clone(in.snapshot.nodeAddresses)
	c.snapshot.withdrawn = slices.Clone(in.snapshot.withdrawn)
	c.snapshot.warm.v4, c.snapshot.warm.v6 = slices.Clone(in.snapshot.warm.v4), slices.Clone(in.snapshot.warm.v6)
	c.local.uses = maps.Clone(in.local.uses)
	c.local.released, c.local.contenders = maps.Clone(in.local.released), maps.Clone(in.local.contenders)
	c.local.cooldown, c.local.quarantine = slices.Clone(in.local.cooldown), slices.Clone(in.local.quarantine)
	c.local.entry.written = in.local.entry.written.Clone()
	c.claims = nil
	for _, x := range in.claims {
		y := *x
		y.tentative = slices.Clone(x.tentative)
		c.claims = append(c.claims, &y)
	}
	return c
}

// outcome is a plan as comparable text: claims by their number, and no order where a plan has none.
func outcome(in *planInputs, p *plan, err error) string {
	if errors.Is(err, status.ErrNeedEndpoints) {
		return "needs the list of DanmEps"
	}
	if err != nil {
		return err.Error()
	}
	number := func(c *claim) int { return slices.Index(in.claims, c) }
	sorted := func(addrs []netip.Addr) []netip.Addr {
		return slices.SortedFunc(slices.Values(addrs), netip.Addr.Compare)
	}
	text := fmt.Sprint(p.withdraw.close, sorted(p.withdraw.addrs), p.withdraw.shrink, p.withdraw.limit)
	if !p.withdraw.isEmpty() {
		return "withdraw " + text
	}
	var warnings []string
	for _, w := range p.warnings {
		warnings = append(warnings, w.Error())
	}
	slices.Sort(warnings)
	text += fmt.Sprintln(warnings, p.changed, p.entry.Seq, p.entry.Addrs(), p.next.IPAM.V4, p.next.IPAM.Held, p.next.IPAM.ReclaimRequestTime)
	text += fmt.Sprintln(sorted(slices.Collect(maps.Keys(p.freed))), sorted(p.orphans), sorted(p.gone), p.stock, p.cool, p.collected, p.collectErr)
	text += fmt.Sprintln(p.keepWarm, p.target, p.allowed, p.served, p.starved, p.room4, p.room6, p.reassert, p.deadDanmEps)
	for _, a := range p.answers {
		text += fmt.Sprintln(number(a.to), a.addrs, a.err)
	}
	for i, c := range in.claims {
		text += fmt.Sprintln(i, p.tentative[c])
	}
	return text
}

// randomInputs returns values as they may come, and also some that never do: a plan is a
// function of any values.
func randomInputs(intN func(int) int) planInputs {
	chance := func(n int) bool { return intN(n) == 0 }
	addr := func() netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 0, byte(1 + intN(40))}) }
	now := time.Unix(1_000_000, 0)
	net := &network.Network{
		Ref: network.Ref{Kind: v1.KindClusterNetwork, Name: "net"}, UID: "uid", Generation: 2, Type: "ipvlan",
		V4: &network.Subnet{CIDR: netip.MustParsePrefix(fmt.Sprintf("10.0.0.0/%d", 25+intN(3)))},
	}
	in := planInputs{local: newLocalState()}
	s, l := &in.snapshot, &in.local
	states := []addressState{claimed, published, returning, returned, freeing, warm, cooling, orphan, quarantined}
	var own, other ipam.Ranges
	pool, _ := ipam.New(ipam.Config{CIDR: net.V4.CIDR}) // the subnet is valid
	s.warm = warmContents{open: !chance(3), generation: 2}
	if chance(8) {
		s.warm.generation = 1
	}
	for range intN(20) {
		a := addr()
		if _, twice := l.uses[a]; twice {
			continue
		}
		u := use{state: states[intN(len(states))], owner: "owner", until: now.Add(time.Second)}
		switch u.state {
		case cooling:
			l.cooldown.add(a, u.until)
		case quarantined:
			l.quarantine.add(a, u.until)
		case warm:
			if s.warm.open && !chance(3) {
				s.warm.v4 = append(s.warm.v4, a)
			}
		default:
		}
		l.uses[a] = u
		if u.state != published && !chance(10) {
			own.Add(a)
		}
	}
	for range intN(4) {
		own.Add(addr())
	}
	for range intN(20) {
		if a := addr(); !own.Contains(a) {
			other.Add(a)
		}
	}
	for _, r := range []ipam.Ranges{own, other} {
		for a := range r.All() {
			if !chance(20) {
				pool.MarkAllocated(a)
			}
		}
	}
	state := pool.Encode()
	s.obj = &status.Object{
		Ref: net.Ref, UID: net.UID, Generation: 2, Network: net, Protected: true, Deleting: chance(12),
		IPAM: &v1.IPAMStatus{
			V4: &v1.AddressBitmap{CIDR: state.CIDR, Cursor: state.Cursor, Allocated: pool.Allocated(), Pages: state.Pages},
			Held: map[string]v1.HeldAddresses{
				"n1": {UID: "u1", Seq: 3, V4: own.String()},
				"n2": {UID: "u2", Seq: 1, V4: other.String()},
			},
		},
	}
	if chance(8) {
		s.obj.IPAM.Recovering = &v1.RecoveryStatus{StartTime: metav1.NewMicroTime(now)}
		s.rollback = rollback{answers: true, reassert: chance(2)}
	}
	if s.rollback.reassert || chance(3) {
		found := danmEps{Owners: status.Owners{Mine: map[netip.Addr]string{}, Others: map[netip.Addr]string{}}, live: map[netip.Addr]bool{}}
		for range intN(6) {
			found.Mine[addr()], found.Others[addr()], found.live[addr()] = "mine", "other", true
		}
		s.danmEps, s.collect = &found, chance(2)
	}
	s.now, s.node, s.nodeUID, s.nodeCount = now, "n1", "u1", 1+intN(3)
	s.first, s.fence, s.closing, s.reclaim = s.danmEps != nil && chance(3), chance(5), chance(12), chance(12)
	s.takes, s.maxWarm, s.demand = intN(5), 16, demand{}.after(intN(10), now, time.Minute)
	s.cooldown, s.idleTimeout, s.reclaimTimeout = time.Second, time.Minute, time.Second
	l.verified, l.addressless, l.entry.written = true, intN(2), status.Entry{Present: true, Seq: 3, V4: own.Clone()}
	for range intN(4) {
		c := &claim{net: net, since: now.Add(-time.Duration(intN(2)) * time.Minute)}
		switch {
		case chance(3):
			c.v4.Static = addr()
		default:
			c.v4.Dynamic = true
		}
		if chance(3) {
			c.tentative = []netip.Addr{addr()}
		}
		in.claims = append(in.claims, c)
	}
	return in
}

// A plan changes nothing but its result, and equal values give equal plans.
func TestPlanIsAFunction(t *testing.T) {
	t.Parallel()
	intN := random.IntN(t)
	kinds := map[string]int{}
	for range 2000 {
		in := randomInputs(intN)
		before := in.clone()
		p, err := in.plan()
		first := outcome(&in, p, err)
		if !reflect.DeepEqual(in, before) {
			t.Fatalf("the plan has changed its inputs:\n%+v\nbefore:\n%+v", in, before)
		}
		again := before.clone()
		q, err := again.plan()
		if second := outcome(&again, q, err); first != second {
			t.Fatalf("two plans of equal values differ:\n%s\n%s", first, second)
		}
		kinds[first[:min(8, len(first))]]++
	}
	if kinds["withdraw"] == 0 || kinds["withdraw"] == 2000 {
		t.Errorf("%d of 2000 plans withdraw warm addresses: the inputs are not varied", kinds["withdraw"])
	}
}

// A plan that is written gives back no address that is in the warm pool: it asks for its
// withdrawal before.
func TestPlanKeepsWarmAddresses(t *testing.T) {
	t.Parallel()
	intN := random.IntN(t)
	for range 2000 {
		in := randomInputs(intN)
		p, err := in.plan()
		if err != nil || !p.withdraw.isEmpty() {
			continue
		}
		for _, a := range in.snapshot.warm.v4 {
			granted := slices.ContainsFunc(p.answers, func(x answer) bool { return slices.Contains(x.addrs, a) })
			if !p.entry.Contains(a) || p.freed[a] || granted || slices.Contains(p.gone, a) {
				t.Fatalf("%v is in the warm pool, and the plan gives it away: entry %v, freed %v, gone %v, granted %v",
					a, p.entry.V4.String(), p.freed, p.gone, granted)
			}
		}
	}
}

// No two claims of one plan get the same address, nor one that is in use.
func TestPlanGrantsFreeAddresses(t *testing.T) {
	t.Parallel()
	intN := random.IntN(t)
	for range 2000 {
		in := randomInputs(intN)
		p, err := in.plan()
		if err != nil || !p.withdraw.isEmpty() {
			continue
		}
		taken := map[netip.Addr]string{}
		for a, u := range in.local.uses {
			if !p.freed[a] && !slices.Contains(p.gone, a) {
				taken[a] = fmt.Sprint("state ", u.state)
			}
		}
		other, err := status.ParseEntry(in.snapshot.obj.IPAM.Held["n2"])
		if err != nil {
			t.Fatal(err)
		}
		for a := range other.V4.All() {
			taken[a] = "another node"
		}
		for _, x := range p.answers {
			for _, a := range x.addrs {
				if by := taken[a]; by != "" {
					t.Fatalf("%v is granted, and taken by %s", a, by)
				}
				taken[a] = "another claim"
				if !p.entry.Contains(a) {
					t.Fatalf("%v is granted and not in the entry %s", a, p.entry.V4.String())
				}
			}
		}
		for _, a := range p.stock {
			if by := taken[a]; by != "" {
				t.Fatalf("%v is stocked, and taken by %s", a, by)
			}
			taken[a] = "the warm pool"
		}
	}
}
