// SPDX-License-Identifier: Apache-2.0

package server

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/go-logr/logr"
	"golang.org/x/sync/singleflight"

	"github.com/patchbay-cni/patchbay/cni/pending"
	"github.com/patchbay-cni/patchbay/daemon/attach"
)

// acceptPause is the time between two tries to accept when one fails.
const acceptPause = 50 * time.Millisecond

// Handler does what the requests ask; attach.Service is one. Both methods are
// idempotent and serialise requests for one sandbox themselves.
type Handler interface {
	// Add returns the result in version 1.1.0 of CNI.
	Add(ctx context.Context, req attach.Request) (*types100.Result, error)
	// Del succeeds for a sandbox that is not known.
	Del(ctx context.Context, req attach.Request) error
}

// Config says where a Server listens and whom it asks.
type Config struct {
	// Socket is the path of the unix socket; its folder is made when missing,
	// and holds the heartbeat as well.
	Socket string
	// Pending is the folder with the plugin's DELs.
	Pending string
	// Handler does the work.
	Handler Handler
	// Log gets one line per request.
	Log logr.Logger
	// Observe is called after each request with its command, its CNI error
	// code (0 is success) and how long it took; it may be nil.
	Observe func(command string, code uint, took time.Duration)
	// Limits bound what requests may use; the zero value is DefaultLimits.
	Limits Limits
}

// Limits of a server.
type Limits struct {
	// Adds and Dels are how many of each are in work at a time. They do not
	// share: ADDs that wait for a free address must not keep out the DELs that
	// would free one.
	Adds, Dels int
	// Read bounds the time for a request to arrive and an answer to leave.
	Read time.Duration
	// Work bounds the time for one request, below the plugin's patience.
	Work time.Duration
	// Grace is how long requests in work may go on after Run's context ended,
	// below the Pod's termination grace period.
	Grace time.Duration
	// Replay is the time between two looks into the folder of pending DELs.
	Replay time.Duration
	// Heartbeat is the time between two heartbeats.
	Heartbeat time.Duration
}

// DefaultLimits are for a node with a few hundred Pods.
func DefaultLimits() Limits {
	return Limits{
		Adds: 64, Dels: 64, Read: 5 * time.Second, Work: 90 * time.Second,
		Grace: 20 * time.Second, Replay: 2 * time.Second, Heartbeat: 5 * time.Second,
	}
}

// Server serves the socket.
type Server struct {
	Config
	adds, dels chan struct{}
	// replays lets an ADD wait for the pending DEL of its sandbox.
	replays singleflight.Group
}

// New returns a Server that works with Run.
func New(c Config) *Server {
	c.Limits = cmp.Or(c.Limits, DefaultLimits())
	return &Server{Config: c, adds: make(chan struct{}, c.Limits.Adds), dels: make(chan struct{}, c.Limits.Dels)}
}

// Run serves until ctx ends; then it takes no more requests and waits for those
// in work. The journal's lock must be held, so that no other daemon serves.
func (s *Server) Run(ctx context.Context) error {
	if err := pending.MakeDir(s.Pending); err != nil {
		return fmt.Errorf("make folder for pending requests: %w", err)
	}
	l, err := listen(s.Socket)
	if err != nil {
		return err
	}
	var background sync.WaitGroup
	background.Go(func() { s.beat(ctx) })
	background.Go(func() { s.replayAll(ctx) })
	s.accept(ctx, l)
	background.Wait()
	return l.Close()
}

// accept takes connections until ctx ends, then waits for those it has.
func (s *Server) accept(ctx context.Context, l net.Listener) {
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	var conns sync.WaitGroup
	for ctx.Err() == nil {
		conn, err := l.Accept()
		if err == nil {
			conns.Go(func() { s.serve(ctx, work, conn) })
		} else if ctx.Err() == nil {
			// Out of file descriptors, say: requests in work give some back.
			s.Log.Error(err, "accept connection", "socket", s.Socket)
			time.Sleep(acceptPause)
		}
	}
	grace := time.AfterFunc(s.Limits.Grace, cancel)
	defer grace.Stop()
	conns.Wait()
}
