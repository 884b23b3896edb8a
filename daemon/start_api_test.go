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

// A daemon that is stopped during its start ends without an error. Each start is stopped one request to
// the API server later, until one becomes ready.
func TestStopDuringEachStepOfTheStart(t *testing.T) {
	env := apitest.Start(t)
	n := newNode(t, env)
	n.network("10.33.0.0/24")
	g := n.newWriteGate()
	for requests := int64(0); ; requests++ {
		ready, err := n.startUntil(t, g, requests)
		if err != nil {
			t.Fatalf("stopped at request %d, Run returned %v", requests, err)
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

// startUntil runs the daemon until it has sent this number of requests or is ready.
func (n *node) startUntil(t *testing.T, g *writeGate, requests int64) (ready bool, err error) {
	t.Helper()
	ctx, end := context.WithTimeout(context.WithoutCancel(t.Context()), eventuallyTimeout)
	defer end()
	var sent atomic.Int64
	g.setOnRequest(func() {
		if sent.Add(1) >= requests {
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

// isReady reports whether /readyz returns 200.
func (n *node) isReady() bool {
	res, err := http.Get("http://" + n.http + "/readyz")
	if err != nil {
		return false
	}
	_ = res.Body.Close()
	return res.StatusCode == http.StatusOK
}

// A daemon that waits for the journal's lock ends without an error too.
func TestStopWhileTheJournalIsLocked(t *testing.T) {
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
		t.Errorf("Run returned %v, want no error", err)
	}
}
