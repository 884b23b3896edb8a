// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package claimtest_test

import (
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/patchbay-cni/patchbay/ipam/allocator"
	"github.com/patchbay-cni/patchbay/test/apitest"
	"github.com/patchbay-cni/patchbay/test/random"
)

// exactPoolSize is the number of addresses of a /25.
const exactPoolSize = 126

// warmAllNodes runs Pods until each node has addresses in its warm pool.
func warmAllNodes(t *testing.T, l *trio) {
	t.Helper()
	for _, h := range l.hosts {
		eventually(t, h.name+" has warm addresses", func() error {
			if err := h.runPod(t.Context(), l.net, 0, true); err != nil {
				return err
			}
			if h.daemon.Load().Stats().Warm == 0 {
				return errors.New("the warm pool is empty")
			}
			return nil
		})
	}
}

// A pool with exactly as many addresses as Pods serves all of them on any node, although the warm pools of
// nodes have some.
func TestExactPoolWithWarmAddresses(t *testing.T) {
	t.Parallel()
	env, seed := apitest.Start(t), random.Seed(t)
	l := newTrio(t, env, "10.0.0.0/25", func(cfg *allocator.Config) {
		cfg.Cooldown, cfg.ReclaimTimeout = 50*time.Millisecond, 3*time.Minute // no claim may fail
	})
	warmAllNodes(t, l)
	dice := rand.New(rand.NewPCG(seed, 0))
	nodes := make([]int, exactPoolSize)
	for i := range nodes {
		nodes[i] = dice.IntN(len(l.hosts))
	}
	var mu sync.Mutex
	var all sync.WaitGroup
	for _, at := range nodes {
		all.Go(func() {
			h, owner := l.hosts[at], apitest.Name("ep")
			err := h.daemon.Load().attach(t.Context(), l.net, owner)
			if err == nil {
				err = h.retry(t.Context(), func(d *daemon) error { return d.publish(t.Context(), owner) })
			}
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			l.owners[at] = append(l.owners[at], owner)
		})
	}
	all.Wait()
	if err := checkUsed(t, env, l.net, exactPoolSize); err != nil {
		t.Error(err)
	}
	l.detachAll(t)
}
