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

// hold makes the first call whose name begins with a prefix wait. It tells when
// the call is there; the call goes on when let is closed or its context ends.
func (l *life) hold(prefix string) (there <-chan struct{}, let chan struct{}) {
	at, let := make(chan struct{}), make(chan struct{})
	var once sync.Once
	l.hook = func(ctx context.Context, call string) {
		if !strings.HasPrefix(call, prefix) {
			return
		}
		once.Do(func() {
			close(at)
			select {
			case <-let:
			case <-ctx.Done():
			}
		})
	}
	return at, let
}

// A DEL ends the ADD that is under way, wherever it is, and waits for its
// roll-back. Nothing is left, and nobody gets an Event for it.
func TestDelEndsAdd(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"Network", "Claim", "Parent", "Attach eth1"} {
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			w := newWorld()
			l := w.mustStart(t)
			req := w.sandbox("a")
			there, _ := l.hold(at)
			added := make(chan error, 1)
			go func() {
				_, err := l.Add(context.Background(), req)
				added <- err
			}()
			<-there
			if err := l.Del(context.Background(), req); err != nil {
				t.Fatalf("DEL: %v", err)
			}
			w.mustBeEmpty(t, "when DEL answers")
			if err := <-added; !errors.Is(err, attach.ErrDeleted) {
				t.Errorf("ADD: %v, want ErrDeleted", err)
			}
			if len(w.events) > 0 {
				t.Errorf("Events of an ADD that nobody wants any more: %q", w.events)
			}
		})
	}
}

// An ADD that waits behind another one of its sandbox is ended by DEL, too.
func TestDelEndsWaitingAdd(t *testing.T) {
	t.Parallel()
	w := newWorld()
	l := w.mustStart(t)
	req := w.sandbox("a")
	there, _ := l.hold("Claim")
	added := make(chan error, 2)
	add := func() {
		_, err := l.Add(context.Background(), req)
		added <- err
	}
	go add()
	<-there
	go add()
	for l.Waiting("a") < 2 {
		runtime.Gosched()
	}
	if err := l.Del(context.Background(), req); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := <-added; !errors.Is(err, attach.ErrDeleted) {
			t.Errorf("ADD: %v, want ErrDeleted", err)
		}
	}
	w.mustBeEmpty(t, "after DEL")
}

// Whoever gives up waiting leaves the sandbox to the others.
func TestWaitingEndsWithContext(t *testing.T) {
	t.Parallel()
	w := newWorld()
	l := w.mustStart(t)
	req := w.sandbox("a")
	there, let := l.hold("Detach eth1")
	if _, err := l.Add(context.Background(), req); err != nil {
		t.Fatal(err)
	}
	deleted := make(chan error, 1)
	go func() { deleted <- l.Del(context.Background(), req) }()
	<-there
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	if err := l.Del(ctx, req); !errors.Is(err, attach.ErrTryAgain) {
		t.Errorf("second DEL: %v, want ErrTryAgain", err)
	}
	if _, err := l.Add(ctx, req); !errors.Is(err, attach.ErrTryAgain) {
		t.Errorf("ADD: %v, want ErrTryAgain", err)
	}
	close(let)
	if err := <-deleted; err != nil {
		t.Fatal(err)
	}
	l.drain()
	w.mustBeEmpty(t, "after DEL")
}

// A request whose caller has gone before its turn has no effect, although the
// turn may be free as well.
func TestEndedContextIsNotServed(t *testing.T) {
	t.Parallel()
	w := newWorld()
	l := w.mustStart(t)
	l.calls = nil
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for range 50 { // which of two ready channels is taken is random
		_, err := l.Add(ctx, w.sandbox("a"))
		if !errors.Is(err, context.Canceled) {
			t.Fatalf("ADD: %v, want context.Canceled", err)
		}
		if err := l.Del(ctx, request("a")); !errors.Is(err, context.Canceled) {
			t.Fatalf("DEL: %v, want context.Canceled", err)
		}
	}
	if len(l.calls) > 0 {
		t.Errorf("calls: %q", l.calls)
	}
}

// An ADD whose caller has gone is rolled back, although its context has ended.
func TestAddWithoutCaller(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"Claim", "Parent", "Attach eth1"} {
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			w := newWorld()
			l := w.mustStart(t)
			ctx, cancel := context.WithCancel(context.Background())
			there, _ := l.hold(at)
			go func() { <-there; cancel() }()
			if _, err := l.Add(ctx, w.sandbox("a")); !errors.Is(err, context.Canceled) {
				t.Errorf("ADD: %v, want context.Canceled", err)
			}
			w.mustBeEmpty(t, "after an ADD that was given up")
		})
	}
}

// Many sandboxes at once, each with ADDs and DELs that race, on networks with
// fewer addresses than that: some fail, none is given out twice, none is lost.
func TestRaces(t *testing.T) {
	t.Parallel()
	w := newWorld()
	l, intN := w.mustStart(t), random.IntN(t)
	l.hook = func(context.Context, string) {
		for range intN(3) {
			runtime.Gosched()
		}
	}
	var all sync.WaitGroup
	for i := range 12 {
		req := w.sandbox(fmt.Sprintf("s%d", i))
		for range 3 {
			all.Go(func() { _, _ = l.Add(context.Background(), req) })
			all.Go(func() { _ = l.Del(context.Background(), req) })
			all.Go(func() {
				if err := w.check(); err != nil {
					t.Error(err)
				}
			})
		}
	}
	all.Wait()
	for i := range 12 {
		if err := l.Del(context.Background(), request(fmt.Sprintf("s%d", i))); err != nil {
			t.Errorf("DEL of sandbox %d: %v", i, err)
		}
	}
	l.drain()
	w.mustBeEmpty(t, "after all DELs")
}
