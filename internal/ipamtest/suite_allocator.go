// SPDX-License-Identifier: Apache-2.0

package ipamtest

import (
	"errors"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam/allocator"
	"github.com/patchbay-cni/patchbay/ipam/status"
)

// allocatorsAndFaults lets four nodes claim at once and then give back, while
// each tenth request meets a conflict, is lost on its way there or back, or
// arrives late.
func (s *suite) allocatorsAndFaults() {
	const nodes, each = 4, 20
	net := s.create()
	faulty := &Faulty{Store: s.Store(), Next: Dice(1, 10, 10*time.Millisecond)}
	got := make([][]netip.Addr, nodes)
	fleet := make([]*allocator.Allocator, nodes)
	var wg sync.WaitGroup
	for i := range fleet {
		name := "n" + strconv.Itoa(i)
		fleet[i] = allocator.New(faulty, allocator.Config{Node: name, NodeUID: name, WarmPoolSize: -1, Cooldown: -1})
		defer fleet[i].Close()
		wg.Go(func() { got[i] = s.claimAll(fleet[i], net, each) })
	}
	wg.Wait()
	faulty.Wait()

	owner := map[netip.Addr]int{}
	for i, addrs := range got {
		for _, a := range addrs {
			if other, taken := owner[a]; taken {
				s.Errorf("%v is node %d's and node %d's", a, other, i)
			}
			owner[a] = i
		}
	}
	o := s.get()
	used, err := Bits(o.IPAM.V4)
	if err := errors.Join(err, Covered(o, nil)); err != nil {
		s.Error(err)
	}
	if len(used) < nodes*each || len(owner) != nodes*each {
		s.Errorf("%d bits, %d addresses for %d claims", len(used), len(owner), nodes*each)
	}
	for a, i := range owner {
		fleet[i].Discard(net, a, netip.Addr{})
	}
	s.untilEmpty()
}

// claimAll makes n claims at once, each until it succeeds.
func (s *suite) claimAll(a *allocator.Allocator, net *network.Network, n int) []netip.Addr {
	addrs := make([]netip.Addr, n)
	var wg sync.WaitGroup
	for i := range addrs {
		wg.Go(func() {
			for s.Context().Err() == nil {
				a4, _, err := a.Claim(s.Context(), net, allocator.AddressRequest{Dynamic: true}, allocator.AddressRequest{})
				if err == nil {
					addrs[i] = a4
					return
				}
				if !errors.Is(err, status.ErrTryAgain) {
					s.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	return addrs
}

// untilEmpty waits until no bit is set and no entry is left.
func (s *suite) untilEmpty() {
	s.Helper()
	var o *status.Object
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		o = s.get()
		if o.IPAM.V4.Pages == nil && o.IPAM.Held == nil && o.Allocated == 0 {
			return
		}
	}
	s.Errorf("left after a minute: %+v", o.IPAM)
}
