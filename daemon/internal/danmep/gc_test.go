// SPDX-License-Identifier: Apache-2.0

package danmep

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// failingClient counts lists and returns an error for each, which ends a sweep.
type failingClient struct {
	client.Client
	lists int
}

// List implements client.Client.
func (f *failingClient) List(context.Context, client.ObjectList, ...client.ListOption) error {
	f.lists++
	return errors.New("unreachable")
}

// A recovery cannot end while orphaned DanmEps of a node exist, so that a trigger starts a sweep at
// once.
func TestGCRunsOnTrigger(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		trigger := make(chan struct{})
		c := &failingClient{}
		gc := &GC{Client: c, Node: "node", Trigger: trigger}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- gc.Run(ctx) }()
		synctest.Wait()
		triggered := time.Now()
		trigger <- struct{}{}
		synctest.Wait()
		if c.lists != 2 || time.Since(triggered) > 0 {
			t.Errorf("got %d sweeps after %v, want 2 at once", c.lists, time.Since(triggered))
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
