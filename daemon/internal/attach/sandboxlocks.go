// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"errors"
	"sync"
)

// ErrDeleted says that an ADD was ended because DEL came for its sandbox.
var ErrDeleted = errors.New("the sandbox is being deleted")

// sandboxLocks lets one request at a time work on a sandbox. A DEL ends the ADDs
// that run or wait: kubelet gives up on a sandbox while its ADD still runs, and
// what that would attach afterwards nobody would ever take away. The zero value
// is ready.
type sandboxLocks struct {
	mu   sync.Mutex
	byID map[string]*sandboxLock
}

// sandboxLock is the queue of one sandbox.
type sandboxLock struct {
	// token holds one token; who takes it works.
	token chan struct{}
	// users counts who has or waits for the turn; guarded by sandboxes.mu.
	users int
	// adds end the ADDs that run or wait; guarded by sandboxes.mu.
	adds    map[int]context.CancelCauseFunc
	nextAdd int
}

// lockForAdd waits for the sandbox's turn. The context that it returns ends with
// ErrDeleted when a DEL comes. The function gives the turn back.
func (s *sandboxLocks) lockForAdd(ctx context.Context, id string) (context.Context, func(), error) {
	ctx, cancel := context.WithCancelCause(ctx)
	s.mu.Lock()
	box := s.addUser(id)
	n := box.nextAdd
	box.nextAdd++
	box.adds[n] = cancel
	s.mu.Unlock()
	part := func() {
		s.mu.Lock()
		delete(box.adds, n)
		s.dropUser(id, box)
		s.mu.Unlock()
		cancel(nil)
	}
	if err := box.takeToken(ctx); err != nil {
		part()
		return nil, nil, err
	}
	return ctx, func() { box.token <- struct{}{}; part() }, nil
}

// lockForDel ends the ADDs of the sandbox and waits for its turn, which
// the function gives back.
func (s *sandboxLocks) lockForDel(ctx context.Context, id string) (func(), error) {
	s.mu.Lock()
	box := s.addUser(id)
	for _, cancel := range box.adds {
		cancel(ErrDeleted)
	}
	s.mu.Unlock()
	return s.acquire(ctx, id, box)
}

// lock waits for the sandbox's turn and ends nobody's work.
func (s *sandboxLocks) lock(ctx context.Context, id string) (func(), error) {
	s.mu.Lock()
	box := s.addUser(id)
	s.mu.Unlock()
	return s.acquire(ctx, id, box)
}

// acquire waits in a queue that was joined; the function gives the turn back.
func (s *sandboxLocks) acquire(ctx context.Context, id string, box *sandboxLock) (func(), error) {
	part := func() {
		s.mu.Lock()
		s.dropUser(id, box)
		s.mu.Unlock()
	}
	if err := box.takeToken(ctx); err != nil {
		part()
		return nil, err
	}
	return func() { box.token <- struct{}{}; part() }, nil
}

// takeToken takes the turn; a context that has ended is never served.
func (b *sandboxLock) takeToken(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-b.token:
	}
	if ctx.Err() != nil {
		b.token <- struct{}{}
		return context.Cause(ctx)
	}
	return nil
}

// addUser finds or makes the sandbox's queue; s.mu is held.
func (s *sandboxLocks) addUser(id string) *sandboxLock {
	box := s.byID[id]
	if box == nil {
		box = &sandboxLock{token: make(chan struct{}, 1), adds: map[int]context.CancelCauseFunc{}}
		box.token <- struct{}{}
		if s.byID == nil {
			s.byID = map[string]*sandboxLock{}
		}
		s.byID[id] = box
	}
	box.users++
	return box
}

// dropUser forgets a queue that nobody is in; s.mu is held.
func (s *sandboxLocks) dropUser(id string, box *sandboxLock) {
	if box.users--; box.users == 0 {
		delete(s.byID, id)
	}
}
