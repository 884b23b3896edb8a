// SPDX-License-Identifier: Apache-2.0

package ipamtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam/allocator"
	"github.com/patchbay-cni/patchbay/ipam/status"
)

// ErrFault is the error of a request with a fault other than a conflict.
var ErrFault = errors.New("injected fault")

// Kind is the kind of a fault.
type Kind int

const (
	// Fine injects no fault.
	Fine Kind = iota
	// Conflict returns ErrConflict for a write, which is not made. It does not affect a read.
	Conflict
	// LostRequest returns ErrFault; the store does not get the request.
	LostRequest
	// LostReply returns ErrFault after the store has handled the request.
	LostReply
	// Late returns ErrFault at once; the store gets the write after Delay.
	Late
	// Twice returns ErrConflict for a write that was made: a proxy has sent it twice, and
	// the response is that of the second one. It does not affect a read.
	Twice
)

// Fault is the fault of one request, which comes after Delay.
type Fault struct {
	Kind  Kind
	Delay time.Duration
}

// Op is a method of allocator.Store.
type Op string

// The methods of allocator.Store.
const (
	OpGet       Op = "Get"
	OpUpdate    Op = "Update"
	OpProtect   Op = "Protect"
	OpEndpoints Op = "Endpoints"
)

// Faulty injects faults into a store.
type Faulty struct {
	// Store handles the requests.
	Store allocator.Store
	// Next returns the fault of the next request. It may be called from several goroutines.
	Next func(Op) Fault

	mu sync.Mutex
	// late has a channel for each late write, which is closed after the store has handled it.
	late []chan struct{}
}

// Dice returns a Faulty.Next that draws random faults: each kind except Fine for percent of the
// requests, with delays up to most. Equal seeds draw equal faults.
func Dice(seed uint64, percent int, most time.Duration) func(Op) Fault {
	var mu sync.Mutex
	r := rand.New(rand.NewPCG(seed, seed))
	return func(Op) Fault {
		mu.Lock()
		defer mu.Unlock()
		f := Fault{Delay: time.Duration(r.Int64N(int64(most) + 1))}
		if n := r.IntN(100); n < int(Late)*percent {
			f.Kind = Kind(n/percent) + Conflict
		}
		return f
	}
}

// Wait waits until the store has handled all late writes. More may be added meanwhile, which a
// WaitGroup would not allow.
func (f *Faulty) Wait() {
	for {
		f.mu.Lock()
		late := f.late
		f.late = nil
		f.mu.Unlock()
		if len(late) == 0 {
			return
		}
		for _, done := range late {
			<-done
		}
	}
}

// later makes a write after a delay.
func (f *Faulty) later(delay time.Duration, write func()) {
	done := make(chan struct{})
	f.mu.Lock()
	f.late = append(f.late, done)
	f.mu.Unlock()
	go func() {
		defer close(done)
		time.Sleep(delay)
		write()
	}()
}

// Get implements allocator.Store.
func (f *Faulty) Get(ctx context.Context, ref network.Ref) (*status.Object, error) {
	return through(ctx, f, OpGet, func(ctx context.Context) (*status.Object, error) {
		return f.Store.Get(ctx, ref)
	})
}

// Update implements allocator.Store.
func (f *Faulty) Update(ctx context.Context, o *status.Object) (*status.Object, error) {
	return through(ctx, f, OpUpdate, func(ctx context.Context) (*status.Object, error) {
		return f.Store.Update(ctx, o)
	})
}

// Protect implements allocator.Store.
func (f *Faulty) Protect(ctx context.Context, o *status.Object, on bool) (*status.Object, error) {
	return through(ctx, f, OpProtect, func(ctx context.Context) (*status.Object, error) {
		return f.Store.Protect(ctx, o, on)
	})
}

// Endpoints implements allocator.Store.
func (f *Faulty) Endpoints(ctx context.Context, ref network.Ref) ([]status.Endpoint, error) {
	return through(ctx, f, OpEndpoints, func(ctx context.Context) ([]status.Endpoint, error) {
		return f.Store.Endpoints(ctx, ref)
	})
}

// through makes a request with the next fault.
func through[T any](ctx context.Context, f *Faulty, op Op, do func(context.Context) (T, error)) (T, error) {
	var none T
	fault := f.Next(op)
	fail := fmt.Errorf("%s: %w", op, ErrFault)
	writes := op == OpUpdate || op == OpProtect
	if fault.Kind == Late && writes {
		f.later(fault.Delay, func() { _, _ = do(context.WithoutCancel(ctx)) }) // its answer is lost
		return none, fail
	}
	select {
	case <-time.After(fault.Delay):
	case <-ctx.Done():
		return none, ctx.Err()
	}
	switch {
	case fault.Kind == Conflict && writes:
		return none, fmt.Errorf("%s: %w", op, status.ErrConflict)
	case fault.Kind == Twice && writes:
		if _, err := do(ctx); err != nil {
			return none, err
		}
		return none, fmt.Errorf("%s: %w", op, status.ErrConflict)
	case fault.Kind == LostRequest, fault.Kind == Late:
		return none, fail
	case fault.Kind == LostReply:
		if _, err := do(ctx); err != nil {
			return none, err
		}
		return none, fail
	}
	return do(ctx)
}
