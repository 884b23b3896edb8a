// SPDX-License-Identifier: Apache-2.0

package allocator_test

import (
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/patchbay-cni/patchbay/ipam/internal/testbed"

	"github.com/patchbay-cni/patchbay/internal/ipamtest"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam/allocator"
)

// While one network's plan is being made, and somebody waits for its end, the
// others give addresses.
func TestPlanningHoldsUpNoOtherNetwork(t *testing.T) {
	t.Parallel()
	store := ipamtest.NewFake()
	slow, quick := store.Create(testbed.ClusterNetwork("10.0.0.0/24", "")), testbed.ClusterNetwork("10.1.0.0/24", "")
	quick.Ref.Name = "quick"
	quick = store.Create(quick)

	planning, goOn := make(chan struct{}), make(chan struct{})
	var once sync.Once
	a := allocator.New(store, allocator.Config{Node: "n1", Reserved: func(n *network.Network) []netip.Addr {
		if n.Ref == slow.Ref {
			once.Do(func() { close(planning) })
			<-goOn
		}
		return nil
	}})
	defer a.Close()
	var waiting sync.WaitGroup
	waiting.Go(func() { _, _, _ = a.Claim(t.Context(), slow, testbed.Dynamic(), testbed.None()) })
	<-planning
	for range 4 {
		waiting.Go(func() { a.Discard(slow, testbed.Addr("10.0.0.9"), testbed.NoAddr()) })
	}
	done := make(chan error, 1)
	go func() {
		var err error
		for range 100 {
			if _, _, err = a.Claim(t.Context(), quick, testbed.Dynamic(), testbed.None()); err != nil {
				break
			}
		}
		done <- err
	}()
	select {
	case err := <-done:
		if err != nil {
			t.Errorf("Claim: %v", err)
		}
	case <-time.After(time.Minute):
		t.Error("a claim waits for the plan of another network")
	}
	close(goOn)
	waiting.Wait()
}
