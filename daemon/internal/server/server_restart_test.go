// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/patchbay-cni/patchbay/cni/wire"
	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
)

// Upgrades fail nobody: while daemons follow each other, every request that the
// plugin makes gets its answer, each from one of them.
func TestRestartsFailNobody(t *testing.T) {
	t.Parallel()
	m := machine(t.TempDir())
	h := &handler{
		add: func(context.Context, attach.Request) (*types100.Result, error) {
			time.Sleep(2 * time.Millisecond) // so that stops meet requests in work
			return full(), nil
		},
	}
	c := prepare(t, h)
	c.Socket, c.PendingDir = m.socket(), m.pending()
	d := start(t, c)
	var stop atomic.Bool
	var done atomic.Int32
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := 0; !stop.Load(); i++ {
				for _, command := range []string{"ADD", "DEL", "STATUS"} {
					if status, out := m.invoke(t.Context(), command, fmt.Sprintf("w%dp%d", w, i), "1.1.0"); status != 0 {
						t.Errorf("%s: %s", command, out)
					}
				}
				done.Add(1)
			}
		})
	}
	for range 6 {
		before := done.Load()
		eventually(t, "requests were answered", func() bool { return done.Load() > before+4 })
		if err := d.stop(); err != nil {
			t.Fatal(err)
		}
		if _, err := wire.Call(t.Context(), c.Socket, &wire.Request{Command: "STATUS"}); err == nil {
			t.Error("a daemon that has stopped answers")
		}
		d = start(t, c)
	}
	stop.Store(true)
	wg.Wait()
}
