// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"io/fs"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/patchbay-cni/patchbay/internal/pending"
)

const (
	// replayWorkers is how many pending DELs are replayed at a time.
	replayWorkers = 8
	// maxReplayDelay is the longest delay between two attempts at a pending DEL.
	maxReplayDelay = time.Minute
)

// retryState is the time and the delay of the next attempt at a failed DEL.
type retryState struct {
	at    time.Time
	delay time.Duration
}

// backOff returns the state with twice the delay, which is at least minDelay.
func (r retryState) backOff(minDelay time.Duration) retryState {
	delay := min(max(2*r.delay, minDelay), maxReplayDelay)
	return retryState{at: time.Now().Add(delay), delay: delay}
}

// runReplay replays pending DELs until ctx ends. A plugin that found no daemon may store a DEL after
// this daemon has started.
func (s *Server) runReplay(ctx context.Context) {
	var retries map[string]retryState
	for {
		if err := pending.RemoveStalePartials(s.PendingDir, time.Now()); err != nil {
			s.Log.Error(err, "Failed to remove partial files of pending requests")
		}
		retries = s.replayRound(ctx, retries)
		select {
		case <-ctx.Done():
			return
		case <-time.After(s.Limits.ReplayInterval):
		}
	}
}

// replayRound replays each pending DEL that is due, and returns the state of those that remain.
func (s *Server) replayRound(ctx context.Context, retries map[string]retryState) map[string]retryState {
	names, err := pending.List(s.PendingDir)
	if err != nil {
		s.Log.Error(err, "Failed to list pending requests")
	}
	var group errgroup.Group
	group.SetLimit(replayWorkers)
	var mu sync.Mutex
	remaining := map[string]retryState{}
	keep := func(name string, r retryState) {
		mu.Lock()
		defer mu.Unlock()
		remaining[name] = r
	}
	for _, name := range names {
		if retries[name].at.After(time.Now()) {
			keep(name, retries[name])
			continue
		}
		group.Go(func() error {
			if err := s.replayOnce(ctx, name); err != nil {
				next := retries[name].backOff(s.Limits.ReplayInterval)
				s.Log.Error(err, "Failed to replay a pending DEL", "file", name, "retryAfter", next.delay.String())
				keep(name, next)
			}
			return nil
		})
	}
	_ = group.Wait()
	return remaining
}

// replayOnce replays one pending DEL if it exists, and removes its file. Concurrent callers wait for
// the same replay, because an ADD of the sandbox must come after it.
func (s *Server) replayOnce(ctx context.Context, name string) error {
	_, err, _ := s.replayGroup.Do(name, func() (any, error) { return nil, s.replayFile(ctx, name) })
	return err
}

// replayFile replays the DEL in a file.
func (s *Server) replayFile(ctx context.Context, name string) error {
	req, err := pending.Read(s.PendingDir, name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.Is(err, pending.ErrMalformed):
		s.Log.Error(err, "Set aside a malformed pending DEL, whose sandbox stays in the journal until the runtime repeats the DEL")
		return pending.SetAside(s.PendingDir, name)
	case err != nil:
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, s.Limits.RequestTimeout)
	defer cancel()
	if err := s.del(ctx, req); err != nil {
		return err
	}
	s.Log.Info("Replayed a pending DEL", "sandbox", req.ContainerID, "interface", req.IfName)
	return pending.Remove(s.PendingDir, name)
}
