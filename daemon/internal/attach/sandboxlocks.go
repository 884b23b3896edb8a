// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// ErrDeleted means that a DEL of the same sandbox canceled the ADD.
var ErrDeleted = errors.New("the sandbox is being deleted")

// sandboxLocks runs one request per sandbox at a time. A DEL cancels the ADDs of its sandbox that
// run or wait. Kubelet may give up on a sandbox while its ADD runs, and no DEL would follow an ADD
// that continued. The zero value is ready for use.
type sandboxLocks struct {
	mu   sync.Mutex // guards byID and the users of each lock
	byID map[string]*sandboxLock
}

// sandboxLock is the lock of one sandbox.
type sandboxLock struct {
	// token has one element. The request that takes it runs.
	token chan struct{}
	// users has the requests that run or wait.
	users map[*sandboxUser]bool
}

// sandboxUser is a request that runs or waits.
type sandboxUser struct {
	// cancelAdd cancels an ADD. It is nil for other requests.
	cancelAdd context.CancelCauseFunc
}

// runAdd waits for the sandbox and calls add. A DEL cancels the wait and the context of add with
// ErrDeleted.
func (s *sandboxLocks) runAdd(ctx context.Context, id string, add func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	user := &sandboxUser{cancelAdd: cancel}
	lock := s.join(id, user, false)
	defer s.leave(id, user)
	return lock.run(ctx, id, func() error { return add(ctx) })
}

// runDel cancels the ADDs of the sandbox, waits for it and calls del.
func (s *sandboxLocks) runDel(ctx context.Context, id string, del func() error) error {
	user := &sandboxUser{}
	lock := s.join(id, user, true)
	defer s.leave(id, user)
	return lock.run(ctx, id, del)
}

// run waits for the sandbox and calls f. It cancels no request.
func (s *sandboxLocks) run(ctx context.Context, id string, f func() error) error {
	user := &sandboxUser{}
	lock := s.join(id, user, false)
	defer s.leave(id, user)
	return lock.run(ctx, id, f)
}

// join adds a user to the sandbox's lock, which it creates for the first user. With cancelAdds it
// cancels the ADDs among the users.
func (s *sandboxLocks) join(id string, user *sandboxUser, cancelAdds bool) *sandboxLock {
	s.mu.Lock()
	defer s.mu.Unlock()
	lock := s.byID[id]
	if lock == nil {
		lock = &sandboxLock{token: make(chan struct{}, 1), users: map[*sandboxUser]bool{}}
		lock.token <- struct{}{}
		if s.byID == nil {
			s.byID = map[string]*sandboxLock{}
		}
		s.byID[id] = lock
	}
	if cancelAdds {
		for u := range lock.users {
			if u.cancelAdd != nil {
				u.cancelAdd(ErrDeleted)
			}
		}
	}
	lock.users[user] = true
	return lock
}

// leave removes a user from the sandbox's lock, and deletes the lock after the last user.
func (s *sandboxLocks) leave(id string, user *sandboxUser) {
	s.mu.Lock()
	defer s.mu.Unlock()
	lock := s.byID[id]
	delete(lock.users, user)
	if len(lock.users) == 0 {
		delete(s.byID, id)
	}
}

// run waits for the token and calls f. It does not call f if ctx has ended.
func (l *sandboxLock) run(ctx context.Context, id string, f func() error) error {
	select {
	case <-ctx.Done():
		return waitError(ctx, id)
	case <-l.token:
	}
	defer func() { l.token <- struct{}{} }()
	if ctx.Err() != nil { // both channels were ready
		return waitError(ctx, id)
	}
	return f()
}

// waitError returns the error of a request whose context ended while it waited.
func waitError(ctx context.Context, id string) error {
	return fmt.Errorf("wait for sandbox %s: %w", id, retryableDeadline(context.Cause(ctx)))
}
