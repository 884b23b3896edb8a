// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"errors"
	"sync"
)

// ErrDeleted says that an ADD was ended because DEL came for its sandbox.
var ErrDeleted = errors.New("the sandbox is being deleted")

// sandboxes lets one request at a time work on a sandbox. A DEL ends the ADDs
// that run or wait: kubelet gives up on a sandbox while its ADD still runs, and
// what that would attach afterwards nobody would ever take away. The zero value
// is ready.
type sandboxes struct {
	mu   sync.Mutex
	byID map[string]*sandbox
}

// sandbox is the queue of one sandbox.
type sandbox struct {
	// turn holds one token; who takes it works.
	turn chan struct{}
	// users counts who has or waits for the turn; guarded by sandboxes.mu.
	users int
	// adds end the ADDs that run or wait; guarded by sandboxes.mu.
	adds map[int]context.CancelCauseFunc
	next int
}

// enterAdd waits for the sandbox's turn. The context that it returns ends with
// ErrDeleted when a DEL comes. The function gives the turn back.
func (s *sandboxes) enterAdd(ctx context.Context, id string) (context.Context, func(), error) {
	ctx, cancel := context.WithCancelCause(ctx)
	s.mu.Lock()
	box := s.join(id)
	n := box.next
	box.next++
	box.adds[n] = cancel
	s.mu.Unlock()
	part := func() {
		s.mu.Lock()
		delete(box.adds, n)
		s.part(id, box)
		s.mu.Unlock()
		cancel(nil)
	}
	if err := box.wait(ctx); err != nil {
		part()
		return nil, nil, err
	}
	return ctx, func() { box.turn <- struct{}{}; part() }, nil
}

// enterDel ends the ADDs of the sandbox and waits for its turn, which
// the function gives back.
func (s *sandboxes) enterDel(ctx context.Context, id string) (func(), error) {
	s.mu.Lock()
	box := s.join(id)
	for _, cancel := range box.adds {
		cancel(ErrDeleted)
	}
	s.mu.Unlock()
	return s.turn(ctx, id, box)
}

// enter waits for the sandbox's turn and ends nobody's work.
func (s *sandboxes) enter(ctx context.Context, id string) (func(), error) {
	s.mu.Lock()
	box := s.join(id)
	s.mu.Unlock()
	return s.turn(ctx, id, box)
}

// turn waits in a queue that was joined; the function gives the turn back.
func (s *sandboxes) turn(ctx context.Context, id string, box *sandbox) (func(), error) {
	part := func() {
		s.mu.Lock()
		s.part(id, box)
		s.mu.Unlock()
	}
	if err := box.wait(ctx); err != nil {
		part()
		return nil, err
	}
	return func() { box.turn <- struct{}{}; part() }, nil
}

// wait takes the turn; a context that has ended is never served.
func (b *sandbox) wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-b.turn:
	}
	if ctx.Err() != nil {
		b.turn <- struct{}{}
		return context.Cause(ctx)
	}
	return nil
}

// join finds or makes the sandbox's queue; s.mu is held.
func (s *sandboxes) join(id string) *sandbox {
	box := s.byID[id]
	if box == nil {
		box = &sandbox{turn: make(chan struct{}, 1), adds: map[int]context.CancelCauseFunc{}}
		box.turn <- struct{}{}
		if s.byID == nil {
			s.byID = map[string]*sandbox{}
		}
		s.byID[id] = box
	}
	box.users++
	return box
}

// part forgets a queue that nobody is in; s.mu is held.
func (s *sandboxes) part(id string, box *sandbox) {
	if box.users--; box.users == 0 {
		delete(s.byID, id)
	}
}
