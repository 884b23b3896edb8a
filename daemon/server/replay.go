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
	// replayers is how many pending DELs are in work at a time.
	replayers = 8
	// replayLast is the longest time between two tries of one that fails.
	replayLast = time.Minute
)

// retry is when a DEL that failed is tried again.
type retry struct {
	at    time.Time
	delay time.Duration
}

// next doubles the delay.
func (r retry) next(least time.Duration) retry {
	delay := min(max(2*r.delay, least), replayLast)
	return retry{at: time.Now().Add(delay), delay: delay}
}

// replayAll does the plugin's pending DELs, at once and then whenever new ones
// appear: a plugin that met the last daemon's end may write after our start.
func (s *Server) replayAll(ctx context.Context) {
	var retries map[string]retry
	for {
		if err := pending.Sweep(s.Pending, time.Now()); err != nil {
			s.Log.Error(err, "sweep pending requests")
		}
		retries = s.replayRound(ctx, retries)
		select {
		case <-ctx.Done():
			return
		case <-time.After(s.Limits.Replay):
		}
	}
}

// replayRound tries each pending DEL that is due once, and returns when those
// that are left are due.
func (s *Server) replayRound(ctx context.Context, retries map[string]retry) map[string]retry {
	names, err := pending.List(s.Pending)
	if err != nil {
		s.Log.Error(err, "list pending requests")
	}
	var group errgroup.Group
	group.SetLimit(replayers)
	var mu sync.Mutex
	left := map[string]retry{}
	keep := func(name string, r retry) {
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
			if err := s.replay(ctx, name); err != nil {
				again := retries[name].next(s.Limits.Replay)
				s.Log.Error(err, "replay pending DEL", "file", name, "again", again.delay.String())
				keep(name, again)
			}
			return nil
		})
	}
	_ = group.Wait()
	return left
}

// replay does one pending DEL, if it is there, and removes its file. Who asks
// while it is in work waits for its end: an ADD for the same sandbox must come
// after, not in between.
func (s *Server) replay(ctx context.Context, name string) error {
	_, err, _ := s.replays.Do(name, func() (any, error) { return nil, s.replayOne(ctx, name) })
	return err
}

func (s *Server) replayOne(ctx context.Context, name string) error {
	req, err := pending.Read(s.Pending, name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.Is(err, pending.ErrBad):
		s.Log.Error(err, "pending DEL is set aside: its sandbox stays in the journal until the runtime asks again")
		return pending.SetAside(s.Pending, name)
	case err != nil:
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, s.Limits.Work)
	defer cancel()
	if err := s.del(ctx, req); err != nil {
		return err
	}
	s.Log.Info("replayed pending DEL", "sandbox", req.ContainerID, "interface", req.IfName)
	return pending.Remove(s.Pending, name)
}
