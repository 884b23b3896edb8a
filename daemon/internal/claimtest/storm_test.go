// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package claimtest_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/patchbay-cni/patchbay/internal/ipamtest"
	"github.com/patchbay-cni/patchbay/internal/kube"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam/allocator"
	"github.com/patchbay-cni/patchbay/ipam/gc"
	"github.com/patchbay-cni/patchbay/test/apitest"
	"github.com/patchbay-cni/patchbay/test/random"
)

// stallTimeout is the longest time without the end of a Pod.
const stallTimeout = 3 * time.Minute

// podsPerRestart is the number of ended Pods between two restarts of daemons.
const podsPerRestart = 25

// storm runs Pods on all nodes while daemons are restarted and killed.
type storm struct {
	*fleet
	seed       uint64
	nets       []*network.Network // most Pods use the first one
	pods, each int                // the Pods per node, in total and at a time
	podGone    chan struct{}      // one value per ended Pod; closed at the end
	podsDone   atomic.Int64       // the number of ended Pods
	watchdog   *time.Timer        // ends the storm after stallTimeout
	restarts   atomic.Int64
}

// run returns when all Pods have ended, or after stallTimeout.
func (s *storm) run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s.podGone = make(chan struct{}, s.pods*len(s.hosts))
	s.watchdog = time.AfterFunc(stallTimeout, func() {
		cancel(fmt.Errorf("no Pod has ended for %s, after %d Pods", stallTimeout, s.podsDone.Load()))
	})
	var restarter sync.WaitGroup
	restarter.Go(func() { s.restartDaemons(ctx) })
	errs := make([]error, len(s.hosts))
	var all sync.WaitGroup
	for i, h := range s.hosts {
		all.Go(func() { errs[i] = s.runNode(ctx, h, rand.New(rand.NewPCG(s.seed, uint64(i)))) })
	}
	all.Wait()
	s.watchdog.Stop()
	close(s.podGone)
	restarter.Wait()
	if err := context.Cause(ctx); err != nil {
		return err
	}
	return errors.Join(errs...)
}

// runNode runs the Pods of one node.
func (s *storm) runNode(ctx context.Context, h *host, dice *rand.Rand) error {
	errs := make([]error, s.pods)
	slots := make(chan struct{}, s.each)
	var all sync.WaitGroup
	for i := range s.pods {
		net := s.nets[0]
		if dice.IntN(4) == 0 {
			net = s.nets[dice.IntN(len(s.nets))]
		}
		lifetime, published := time.Duration(dice.Int64N(int64(300*time.Millisecond))), dice.IntN(10) > 0
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			errs[i] = h.runPod(ctx, net, lifetime, published)
			s.podsDone.Add(1)
			s.watchdog.Reset(stallTimeout)
			s.podGone <- struct{}{}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// restartDaemons restarts daemons of random nodes as Pods end, and kills half of them. On a busy machine a
// daemon may only settle after the Pods of its node have ended.
func (s *storm) restartDaemons(ctx context.Context) {
	dice := rand.New(rand.NewPCG(s.seed, 1<<32))
	ended := 0
	for range s.podGone {
		if ended++; ended%podsPerRestart > 0 {
			continue
		}
		h := s.hosts[dice.IntN(len(s.hosts))]
		restart := h.restart
		if dice.IntN(2) == 0 {
			restart = h.kill
		}
		if restart(ctx) == nil {
			s.restarts.Add(1)
		}
	}
}

// 2,000 claims and releases on 50 nodes, through a proxy that drops, delays and duplicates requests. No
// address is in use twice, and none remains in use.
func TestStorm(t *testing.T) {
	env := apitest.New(t)
	seed := random.Seed(t)
	proxy := env.Proxy(t, apitest.RandomFaults(seed, 2, 500*time.Millisecond))
	wide, narrow := create(t, env, "10.0.0.0/22"), create(t, env, "10.1.0.0/26")
	quick := func(cfg *allocator.Config) {
		cfg.WarmPoolSize, cfg.Cooldown, cfg.WarmPoolIdleTimeout = 8, 50*time.Millisecond, 500*time.Millisecond
		cfg.FlushDelay, cfg.Report = 500*time.Millisecond, func(err error) { t.Log(err) }
	}
	s := &storm{
		fleet: newFleet(t, env, 50, proxy.Config(), quick, wide, narrow),
		seed:  seed, nets: []*network.Network{wide, narrow}, pods: 40, each: 4,
	}
	begin := time.Now()
	if err := s.run(t.Context()); err != nil {
		s.logState(t)
		t.Fatal(err)
	}
	t.Logf("%d Pods on %d nodes in %s", s.pods*len(s.hosts), len(s.hosts), time.Since(begin).Round(time.Second))
	if s.restarts.Load() < 5 {
		t.Errorf("got %d restarts, want at least 5", s.restarts.Load())
	}
	proxy.WaitDelayed() // from now on, only running daemons have writes in flight
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	s.finalSweep(ctx, t)
	t.Logf("%d restarts; claims: %+v", s.restarts.Load(), s.stats())
	s.awaitNothingLeft(t)
}

// logState logs the state of the networks after a failure.
func (s *storm) logState(t *testing.T) {
	t.Helper()
	for _, net := range s.nets {
		if o, err := readNetwork(t, s.env, net); err != nil || o.IPAM == nil {
			t.Logf("%s: %v", net.Ref.Name, err)
		} else {
			t.Logf("%s: %d allocated, pressure %v, recovering %v, %d entries",
				net.Ref.Name, ipamtest.Allocated(o.IPAM), o.IPAM.ReclaimRequestTime, o.IPAM.Recovering, len(o.IPAM.Held))
		}
	}
}

// finalSweep runs what each daemon does at intervals: the garbage collection of DanmEps, and a collection
// of unused addresses.
func (s *storm) finalSweep(ctx context.Context, t *testing.T) {
	t.Helper()
	var all sync.WaitGroup
	for _, h := range s.hosts {
		all.Go(func() {
			if err := errors.Join(h.retry(ctx, func(d *daemon) error { return d.removeUnknown(ctx) }), h.reconcile(ctx, h.daemon.Load())); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

// awaitNothingLeft runs the garbage collector until no address is in use and no node has an entry.
func (s *storm) awaitNothingLeft(t *testing.T) {
	t.Helper()
	store := kube.NewStore(s.env.Client)
	collector := gc.NewCollector(store, gc.Config{})
	freed := int64(0)
	for _, net := range s.nets {
		eventually(t, "no address of "+net.Ref.Name+" is in use", func() error {
			drift, err := collector.RepairBitmap(t.Context(), network.KeyOf(net))
			freed += drift.Freed
			return errors.Join(err, checkUsed(t, s.env, net, 0), checkNoEntries(t, s.env, net))
		})
	}
	t.Logf("%d leaked addresses were collected", freed)
}
