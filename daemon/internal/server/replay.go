// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"io/fs"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/patchbay-cni/patchbay/cni/pending"
)

const (
	// replayWorkers is how many pending DELs are in work at a time.
	replayWorkers = 8
	// maxReplayDelay is the longest time between two tries of one that fails.
	maxReplayDelay = time.Minute
)

// retryState is when a DEL that failed is tried again.
type retryState struct {
	at    time.Time
	delay time.Duration
}

// backOff doubles the delay.
func (r retryState) backOff(least time.Duration) retryState {
	delay := min(max(2*r.delay, least), maxReplayDelay)
	return retryState{at: time.Now().Add(delay), delay: delay}
}

// runReplay does the plugin's pending DELs, at once and then whenever new ones
// appear: a plugin that met the last daemon's end may write after our start.
func (s *Server) runReplay(ctx context.Context) {
	var retries map[string]retryState
	for {
		if err := pending.RemoveStalePartials(s.PendingDir, time.Now()); err != nil {
			s.Log.Error(err, "sweep pending requests")
		}
		retries = s.replayRound(ctx, retries)
		select {
		case <-ctx.Done():
			return
		case <-time.After(s.Limits.ReplayInterval):
		}
	}
}

// replayRound tries each pending DEL that is due once, and returns when those
// that are left are due.
func (s *Server) replayRound(ctx context.Context, retries map[string]retryState) map[string]retryState {
	names, err := pending.List(s.PendingDir)
	if err != nil {
		s.Log.Error(err, "list pending requests")
	}
	var group errgroup.Group
	group.SetLimit(replayWorkers)
	var mu sync.Mutex
	left := map[string]retryState{}
	keep := func(name string, r retryState) {
		mu.Lock()
		defer mu.Unlock()
		left[name] = r
	}
	for _, name := range names {
		if retries[name].at.After(time.Now()) {
			keep(name, retries[name])
			continue
		}
		group.Go(func() error {
			if err := s.replayOnce(ctx, name); err != nil {
				again := retries[name].backOff(s.Limits.ReplayInterval)
				s.Log.Error(err, "replay pending DEL", "file", name, "again", again.delay.String())
				keep(name, again)
			}
			return nil
		})
	}
	_ = group.Wait()
	return left
}

// replayOnce does one pending DEL, if it is there, and removes its file. Who asks
// while it is in work waits for its end: an ADD for the same sandbox must come
// after, not in between.
func (s *Server) replayOnce(ctx context.Context, name string) error {
	_, err, _ := s.replayGroup.Do(name, func() (any, error) { return nil, s.replayFile(ctx, name) })
	return err
}

func (s *Server) replayFile(ctx context.Context, name string) error {
	req, err := pending.Read(s.PendingDir, name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.Is(err, pending.ErrMalformed):
		s.Log.Error(err, "pending DEL is set aside: its sandbox stays in the journal until the runtime asks again")
		return pending.SetAside(s.PendingDir, name)
	case err != nil:
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, s.Limits.RequestTimeout)
	defer cancel()
	if err := s.del(ctx, req); err != nil {
		return err
	}
	s.Log.Info("replayed pending DEL", "sandbox", req.ContainerID, "interface", req.IfName)
	return pending.Remove(s.PendingDir, name)
}
