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

// No request of the plugin fails while daemons restart.
func TestRestartsFailNoRequest(t *testing.T) {
	t.Parallel()
	m := machine(t.TempDir())
	h := &fakeHandler{
		add: func(context.Context, attach.Request) (*types100.Result, error) {
			time.Sleep(2 * time.Millisecond) // so that a request is in progress at each stop
			return fullResult(), nil
		},
	}
	c := newConfig(t, h)
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
			t.Error("got a response from a stopped daemon, want an error")
		}
		d = start(t, c)
	}
	stop.Store(true)
	wg.Wait()
}
