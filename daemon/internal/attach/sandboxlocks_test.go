// SPDX-License-Identifier: Apache-2.0

package attach_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
	"github.com/patchbay-cni/patchbay/test/random"
)

// blockCall blocks the first call whose name begins with a prefix. It closes reached when the call is
// made. The call continues when the caller closes unblock, or when its context ends.
func (d *testDaemon) blockCall(prefix string) (reached <-chan struct{}, unblock chan struct{}) {
	made, unblock := make(chan struct{}), make(chan struct{})
	var once sync.Once
	d.hook = func(ctx context.Context, call string) {
		if !strings.HasPrefix(call, prefix) {
			return
		}
		once.Do(func() {
			close(made)
			select {
			case <-unblock:
			case <-ctx.Done():
			}
		})
	}
	return made, unblock
}

// A DEL cancels an ADD in progress at any call, and waits for its roll-back. Nothing remains, and no
// Event is recorded.
func TestDelEndsAdd(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"Network", "Claim", "Parent", "Attach eth1"} {
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			env := newEnvironment()
			d := env.mustStart(t)
			req := env.sandbox("a")
			reached, _ := d.blockCall(at)
			added := make(chan error, 1)
			go func() {
				_, err := d.Add(context.Background(), req)
				added <- err
			}()
			<-reached
			if err := d.Del(context.Background(), req); err != nil {
				t.Fatalf("DEL: %v", err)
			}
			env.mustBeEmpty(t, "when DEL returns")
			if err := <-added; !errors.Is(err, attach.ErrDeleted) {
				t.Errorf("ADD: %v, want ErrDeleted", err)
			}
			if len(env.events) > 0 {
				t.Errorf("Events of a canceled ADD: got %q, want none", env.events)
			}
		})
	}
}

// A DEL also cancels an ADD that waits for another ADD of its sandbox.
func TestDelEndsWaitingAdd(t *testing.T) {
	t.Parallel()
	env := newEnvironment()
	d := env.mustStart(t)
	req := env.sandbox("a")
	reached, _ := d.blockCall("Claim")
	added := make(chan error, 2)
	add := func() {
		_, err := d.Add(context.Background(), req)
		added <- err
	}
	go add()
	<-reached
	go add()
	for d.Waiting("a") < 2 {
		runtime.Gosched()
	}
	if err := d.Del(context.Background(), req); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := <-added; !errors.Is(err, attach.ErrDeleted) {
			t.Errorf("ADD: %v, want ErrDeleted", err)
		}
	}
	env.mustBeEmpty(t, "after DEL")
}

// A request whose context ends while it waits does not affect the others.
func TestWaitEndsWithContext(t *testing.T) {
	t.Parallel()
	env := newEnvironment()
	d := env.mustStart(t)
	req := env.sandbox("a")
	reached, unblock := d.blockCall("Detach eth1")
	if _, err := d.Add(context.Background(), req); err != nil {
		t.Fatal(err)
	}
	deleted := make(chan error, 1)
	go func() { deleted <- d.Del(context.Background(), req) }()
	<-reached
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	if err := d.Del(ctx, req); !errors.Is(err, attach.ErrTryAgain) {
		t.Errorf("second DEL: %v, want ErrTryAgain", err)
	}
	if _, err := d.Add(ctx, req); !errors.Is(err, attach.ErrTryAgain) {
		t.Errorf("ADD: %v, want ErrTryAgain", err)
	}
	close(unblock)
	if err := <-deleted; err != nil {
		t.Fatal(err)
	}
	d.runPublisher()
	env.mustBeEmpty(t, "after DEL")
}

// A request whose context has ended before its turn has no effect, even if no other request runs.
func TestEndedContextHasNoEffect(t *testing.T) {
	t.Parallel()
	env := newEnvironment()
	d := env.mustStart(t)
	d.calls = nil
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for range 50 { // select picks one of two ready channels at random
		_, err := d.Add(ctx, env.sandbox("a"))
		if !errors.Is(err, context.Canceled) {
			t.Fatalf("ADD: %v, want context.Canceled", err)
		}
		if err := d.Del(ctx, request("a")); !errors.Is(err, context.Canceled) {
			t.Fatalf("DEL: %v, want context.Canceled", err)
		}
	}
	if len(d.calls) > 0 {
		t.Errorf("got calls %q, want none", d.calls)
	}
}

// An ADD whose context has ended is rolled back.
func TestAddWithoutCaller(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"Claim", "Parent", "Attach eth1"} {
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			env := newEnvironment()
			d := env.mustStart(t)
			ctx, cancel := context.WithCancel(context.Background())
			reached, _ := d.blockCall(at)
			go func() { <-reached; cancel() }()
			if _, err := d.Add(ctx, env.sandbox("a")); !errors.Is(err, context.Canceled) {
				t.Errorf("ADD: %v, want context.Canceled", err)
			}
			env.mustBeEmpty(t, "after a canceled ADD")
		})
	}
}

// Concurrent ADDs and DELs of many sandboxes on networks with fewer addresses. Some fail, but no
// address is claimed twice and none is lost.
func TestConcurrentRequests(t *testing.T) {
	t.Parallel()
	env := newEnvironment()
	d, intN := env.mustStart(t), random.IntN(t)
	d.hook = func(context.Context, string) {
		for range intN(3) {
			runtime.Gosched()
		}
	}
	var all sync.WaitGroup
	for i := range 12 {
		req := env.sandbox(fmt.Sprintf("s%d", i))
		for range 3 {
			all.Go(func() { _, _ = d.Add(context.Background(), req) })
			all.Go(func() { _ = d.Del(context.Background(), req) })
			all.Go(func() {
				if err := env.check(); err != nil {
					t.Error(err)
				}
			})
		}
	}
	all.Wait()
	for i := range 12 {
		if err := d.Del(context.Background(), request(fmt.Sprintf("s%d", i))); err != nil {
			t.Errorf("DEL of sandbox %d: %v", i, err)
		}
	}
	d.runPublisher()
	env.mustBeEmpty(t, "after all DELs")
}
