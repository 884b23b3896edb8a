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

	"github.com/patchbay-cni/patchbay/internal/kube"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam/claims"
	"github.com/patchbay-cni/patchbay/test/apitest"
	"github.com/patchbay-cni/patchbay/test/random"
)

// stallTimeout is how long no Pod may come or go: however busy the machine is, the storm goes on.
const stallTimeout = 3 * time.Minute

// podsPerRestart is how many Pods are gone when the next daemon ends.
const podsPerRestart = 25

// storm is Pods that come and go on all nodes while daemons are restarted and killed.
type storm struct {
	*fleet
	seed       uint64
	nets       []*network.Network // the first is the usual one
	pods, each int                // each node has this many Pods in all, and at a time
	podGone    chan struct{}      // a Pod each; closed when all are
	podsDone   atomic.Int64       // Pods that are gone
	watchdog   *time.Timer        // ends the storm when none goes
	restarts   atomic.Int64
}

// run returns when all Pods are gone, or none has gone for too long.
func (s *storm) run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s.podGone = make(chan struct{}, s.pods*len(s.hosts))
	s.watchdog = time.AfterFunc(stallTimeout, func() {
		cancel(fmt.Errorf("no Pod has gone for %s, after %d of them", stallTimeout, s.podsDone.Load()))
	})
	var fate sync.WaitGroup
	fate.Go(func() { s.restartDaemons(ctx) })
	errs := make([]error, len(s.hosts))
	var all sync.WaitGroup
	for i, h := range s.hosts {
		all.Go(func() { errs[i] = s.runNode(ctx, h, rand.New(rand.NewPCG(s.seed, uint64(i)))) })
	}
	all.Wait()
	s.watchdog.Stop()
	close(s.podGone)
	fate.Wait()
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
		stay, published := time.Duration(dice.Int64N(int64(300*time.Millisecond))), dice.IntN(10) > 0
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			errs[i] = h.runPod(ctx, net, stay, published)
			s.podsDone.Add(1)
			s.watchdog.Reset(stallTimeout)
			s.podGone <- struct{}{}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// restartDaemons ends daemons of one node after the other, half of them without warning, as Pods
// go. On a busy machine a daemon may have settled only when its node's Pods are gone.
func (s *storm) restartDaemons(ctx context.Context) {
	dice := rand.New(rand.NewPCG(s.seed, 1<<32))
	over := 0
	for range s.podGone {
		if over++; over%podsPerRestart > 0 {
			continue
		}
		h := s.hosts[dice.IntN(len(s.hosts))]
		end := h.restart
		if dice.IntN(2) == 0 {
			end = h.kill
		}
		if end(ctx) == nil {
			s.restarts.Add(1)
		}
	}
}

// 2,000 claims and releases on 50 nodes, through a network that drops, delays and
// duplicates: no address is in use twice, and nothing is left.
func TestStorm(t *testing.T) {
	env := apitest.New(t)
	seed := random.Seed(t)
	proxy := env.Proxy(t, apitest.RandomFaults(seed, 2, 500*time.Millisecond))
	wide, narrow := create(t, env, "10.0.0.0/22"), create(t, env, "10.1.0.0/26")
	quick := func(cfg *claims.Config) {
		cfg.Hold, cfg.Cool, cfg.Rest = 8, 50*time.Millisecond, 500*time.Millisecond
		cfg.Idle, cfg.Report = 500*time.Millisecond, func(err error) { t.Log(err) }
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
		t.Errorf("%d daemons were restarted, want at least 5", s.restarts.Load())
	}
	proxy.WaitDelayed() // from now on no write is under way but those of living daemons
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	s.finalSweep(ctx, t)
	t.Logf("%d restarts; claims: %+v", s.restarts.Load(), s.stats())
	s.awaitNothingLeft(t)
}

// logState prints what may have kept the nodes from going on.
func (s *storm) logState(t *testing.T) {
	t.Helper()
	for _, net := range s.nets {
		if o, err := readNetwork(t, s.env, net); err != nil || o.IPAM == nil {
			t.Logf("%s: %v", net.Ref.Name, err)
		} else {
			t.Logf("%s: %d of %d in use, pressure %v, recovering %v, %d entries",
				net.Ref.Name, o.Allocated, o.Capacity, o.IPAM.ReclaimRequestTime, o.IPAM.Recovering, len(o.IPAM.Held))
		}
	}
}

// finalSweep has every daemon do what it does in time: look for DanmEps that nobody knows, and
// a second time into its entries.
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

// awaitNothingLeft waits until holds were given back, and collects what nobody covers.
func (s *storm) awaitNothingLeft(t *testing.T) {
	t.Helper()
	store := kube.NewStore(s.env.Client)
	steward := claims.NewSteward(store, claims.StewardConfig{})
	freed := int64(0)
	for _, net := range s.nets {
		eventually(t, "nothing is left of "+net.Ref.Name, func() error {
			drift, err := steward.Audit(t.Context(), claims.KeyOf(net))
			freed += drift.Freed
			return errors.Join(err, checkUsed(t, s.env, net, 0), checkNoEntries(t, s.env, net))
		})
	}
	t.Logf("%d bits were collected that nobody covered", freed)
}
