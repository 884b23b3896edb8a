// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package daemon

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/patchbay-cni/patchbay/daemon/internal/journal"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

// A daemon that is told to end while it starts does so, and that is no error: each
// start ends one request to the API server later than the one before, until one has
// become ready.
func TestEndAtEachMomentOfTheStart(t *testing.T) {
	env := apitest.Start(t)
	n := newNode(t, env)
	n.network("10.33.0.0/24")
	g := n.newGate()
	for requests := int64(0); ; requests++ {
		ready, err := n.startUntil(t, g, requests)
		if err != nil {
			t.Fatalf("told to end at request %d, the daemon ended with: %v", requests, err)
		}
		if ready {
			t.Logf("a start takes %d requests", requests)
			return
		}
		if requests > 200 {
			t.Fatal("no start became ready")
		}
	}
}

// startUntil runs the daemon until it has made some requests, or is ready.
func (n *node) startUntil(t *testing.T, g *gate, requests int64) (ready bool, err error) {
	t.Helper()
	ctx, end := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
	defer end()
	var made atomic.Int64
	g.met(func() {
		if made.Add(1) >= requests {
			end()
		}
	})
	if requests == 0 {
		end()
	}
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, n.args, t.Output(), t.Output()) }()
	for {
		select {
		case err := <-ended:
			return ready, err
		case <-time.After(20 * time.Millisecond):
			if n.isReady() {
				ready = true
				end()
			}
		}
	}
}

// isReady reports whether /readyz says so.
func (n *node) isReady() bool {
	res, err := http.Get("http://" + n.http + "/readyz")
	if err != nil {
		return false
	}
	_ = res.Body.Close()
	return res.StatusCode == http.StatusOK
}

// So does one that still waits for the end of the daemon before it.
func TestEndWhileTheJournalIsLocked(t *testing.T) {
	env := apitest.Start(t)
	n := newNode(t, env)
	j, err := journal.Open(n.path("journal.db"), journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = j.Close() }()
	ctx, end := context.WithCancel(t.Context())
	time.AfterFunc(100*time.Millisecond, end)
	if err := Run(ctx, n.args, t.Output(), t.Output()); err != nil {
		t.Errorf("the daemon ended with: %v", err)
	}
}
