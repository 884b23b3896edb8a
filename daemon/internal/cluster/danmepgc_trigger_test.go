// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// failing is a client whose lists are counted and fail: a sweep ends there.
type failing struct {
	client.Client
	lists int
}

func (f *failing) List(context.Context, client.ObjectList, ...client.ListOption) error {
	f.lists++
	return errors.New("away")
}

// A recovery cannot end while a node's dead DanmEps are there: it looks for them at
// once, not when the next look is due.
func TestDanmEpGCRunsOnTrigger(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		now := make(chan struct{})
		c := &failing{}
		o := &DanmEpGC{Client: c, Node: "node", Trigger: now}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- o.Run(ctx) }()
		synctest.Wait()
		begin := time.Now()
		now <- struct{}{}
		synctest.Wait()
		if c.lists != 2 || time.Since(begin) > 0 {
			t.Errorf("%d looks after %v, want the first and one at once", c.lists, time.Since(begin))
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
