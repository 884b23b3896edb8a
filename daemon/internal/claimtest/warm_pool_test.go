// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package claimtest_test

import (
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/patchbay-cni/patchbay/ipam/claims"
	"github.com/patchbay-cni/patchbay/test/apitest"
	"github.com/patchbay-cni/patchbay/test/random"
)

// exact are three nodes and a pool of this many addresses.
const exactPoolSize = 126 // of a /25

// warmAllNodes lets Pods come and go until every node has addresses ready.
func warmAllNodes(t *testing.T, l *trio) {
	t.Helper()
	for _, h := range l.hosts {
		eventually(t, h.name+" has addresses ready", func() error {
			if err := h.runPod(t.Context(), l.net, 0, true); err != nil {
				return err
			}
			if h.daemon.Load().Stats().Held == 0 {
				return errors.New("none are")
			}
			return nil
		})
	}
}

// A pool of exactly as many addresses as Pods serves them all, wherever they are, though
// nodes hold some of it.
func TestExactPoolWithWarmAddresses(t *testing.T) {
	t.Parallel()
	env, seed := apitest.Start(t), random.Seed(t)
	l := newTrio(t, env, "10.0.0.0/25", func(cfg *claims.Config) {
		cfg.Cool, cfg.Patience = 50*time.Millisecond, 3*time.Minute // no claim may fail
	})
	warmAllNodes(t, l)
	dice := rand.New(rand.NewPCG(seed, 0))
	places := make([]int, exactPoolSize)
	for i := range places {
		places[i] = dice.IntN(len(l.hosts))
	}
	var mu sync.Mutex
	var all sync.WaitGroup
	for _, at := range places {
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
