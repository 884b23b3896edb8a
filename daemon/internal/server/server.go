// SPDX-License-Identifier: Apache-2.0

package server

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/go-logr/logr"
	"golang.org/x/sync/singleflight"

	"github.com/patchbay-cni/patchbay/cni/alive"
	"github.com/patchbay-cni/patchbay/cni/conf"
	"github.com/patchbay-cni/patchbay/cni/pending"
	"github.com/patchbay-cni/patchbay/cni/wire"
	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
)

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
	// PendingDir is the folder with the plugin's DELs.
	PendingDir string
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
	// MaxAdds and Dels are how many of each are in work at a time. They do not
	// share: ADDs that wait for a free address must not keep out the DELs that
	// would free one.
	MaxAdds, MaxDels int
	// IOTimeout bounds the time for a request to arrive and an answer to leave.
	IOTimeout time.Duration
	// RequestTimeout bounds the time for one request, below the plugin's patience.
	RequestTimeout time.Duration
	// ShutdownGracePeriod is how long requests in work may go on after Run's context ended,
	// below the Pod's termination grace period.
	ShutdownGracePeriod time.Duration
	// ReplayInterval is the time between two looks into the folder of pending DELs.
	ReplayInterval time.Duration
	// HeartbeatInterval is the time between two heartbeats.
	HeartbeatInterval time.Duration
}

// DefaultLimits are for a node with a few hundred Pods.
func DefaultLimits() Limits {
	return Limits{
		MaxAdds: 64, MaxDels: 64, IOTimeout: 5 * time.Second, RequestTimeout: 90 * time.Second,
		ShutdownGracePeriod: 20 * time.Second, ReplayInterval: 2 * time.Second, HeartbeatInterval: 5 * time.Second,
	}
}

// Server serves the socket.
type Server struct {
	Config
	addSlots, delSlots chan struct{}
	// replayGroup lets an ADD wait for the pending DEL of its sandbox.
	replayGroup singleflight.Group
}

// New returns a Server that works with Run.
func New(c Config) *Server {
	c.Limits = cmp.Or(c.Limits, DefaultLimits())
	return &Server{Config: c, addSlots: make(chan struct{}, c.Limits.MaxAdds), delSlots: make(chan struct{}, c.Limits.MaxDels)}
}

// Run serves until ctx ends; then it takes no more requests and waits for those
// in work. The journal's lock must be held, so that no other daemon serves.
func (s *Server) Run(ctx context.Context) error {
	if err := pending.MakeDir(s.PendingDir); err != nil {
		return fmt.Errorf("make folder for pending requests: %w", err)
	}
	l, err := listen(s.Socket)
	if err != nil {
		return err
	}
	var background sync.WaitGroup
	background.Go(func() { s.runHeartbeat(ctx) })
	background.Go(func() { s.runReplay(ctx) })
	s.accept(ctx, l)
	background.Wait()
	return l.Close()
}

// runHeartbeat touches the heartbeat until ctx ends, and then once more: the minute
// that a restart may take begins with the end.
func (s *Server) runHeartbeat(ctx context.Context) {
	path := wire.HeartbeatPath(s.Socket)
	ticker := time.NewTicker(s.Limits.HeartbeatInterval)
	defer ticker.Stop()
	for {
		if err := alive.Touch(path); err != nil {
			s.Log.Error(err, "heartbeat")
		}
		if ctx.Err() != nil {
			return
		}
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
}

// acceptRetryDelay is the time between two tries to accept when one fails.
const acceptRetryDelay = 50 * time.Millisecond

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
			conns.Go(func() { s.handleConnection(ctx, work, conn) })
		} else if ctx.Err() == nil {
			// Out of file descriptors, say: requests in work give some back.
			s.Log.Error(err, "accept connection", "socket", s.Socket)
			time.Sleep(acceptRetryDelay)
		}
	}
	grace := time.AfterFunc(s.Limits.ShutdownGracePeriod, cancel)
	defer grace.Stop()
	conns.Wait()
}

// errHungUp ends an ADD whose plugin was killed: nobody would take its result.
var errHungUp = errors.New("the plugin hung up")

// handleConnection answers the one request of a connection. Accept ends when the daemon
// stops: what has not arrived then is dropped, and the plugin asks the daemon's
// next life. Work ends when the time for requests in work is over.
func (s *Server) handleConnection(accept, work context.Context, conn net.Conn) {
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(s.Limits.IOTimeout))
	stopped := context.AfterFunc(accept, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	var req wire.Request
	err := wire.ReadFrame(conn, &req)
	if !stopped() {
		return
	}
	if errors.Is(err, io.EOF) {
		return // somebody looked whether we are there
	}
	var res *wire.Response
	if err != nil {
		res = errorResponse(wire.Errorf(wire.CodeDecode, "read request: %w", err))
	} else {
		res = s.handleRequest(work, conn, &req)
	}
	_ = conn.SetDeadline(time.Now().Add(s.Limits.IOTimeout))
	if err := wire.WriteFrame(conn, res); err != nil {
		s.Log.Error(err, "answer is lost", "command", req.Command, "sandbox", req.ContainerID)
	}
}

// handleRequest does one request and reports on it.
func (s *Server) handleRequest(work context.Context, conn net.Conn, req *wire.Request) *wire.Response {
	start := time.Now()
	ctx, cancel := context.WithTimeout(work, s.Limits.RequestTimeout)
	defer cancel()
	if req.Command == "ADD" {
		ctx = cancelOnHangUp(ctx, conn)
	}
	result, err := s.dispatch(ctx, req)
	res := &wire.Response{Result: result}
	if err != nil {
		res = errorResponse(err)
	}
	s.logRequest(req, res.Error, err, time.Since(start))
	return res
}

// cancelOnHangUp ends the context when the peer closes the connection. After
// its request a plugin sends nothing, so that any end of Read is the end. The
// goroutine ends with the connection.
func cancelOnHangUp(ctx context.Context, conn net.Conn) context.Context {
	ctx, cancel := context.WithCancelCause(ctx)
	_ = conn.SetReadDeadline(time.Time{})
	go func() {
		var b [1]byte
		_, _ = conn.Read(b[:])
		cancel(errHungUp)
	}()
	return ctx
}

// dispatch checks a request and hands it to its handler.
func (s *Server) dispatch(ctx context.Context, req *wire.Request) (json.RawMessage, error) {
	if err := conf.ValidateRequest(req); err != nil {
		return nil, err
	}
	switch req.Command {
	case "ADD":
		return s.add(ctx, req)
	case "DEL":
		return nil, s.del(ctx, req)
	case "STATUS":
		return nil, nil // it was answered: the daemon lives
	}
	return nil, wire.Errorf(wire.CodeNotImplemented, "%s is not implemented yet", req.Command)
}

// add attaches, after a DEL for the same sandbox that waits on disk.
func (s *Server) add(ctx context.Context, req *wire.Request) (json.RawMessage, error) {
	c, err := conf.ParseConfig(req.Config)
	if err != nil {
		return nil, err
	}
	if len(c.PrevResult) > 0 {
		return nil, wire.Errorf(wire.CodeConfig,
			"network configuration: prevResult is set: %q must be the first plugin of list %q", c.Type, c.Name)
	}
	args, err := conf.ParseArgs(req.Args)
	if err != nil {
		return nil, err
	}
	leave, err := acquireSlot(ctx, s.addSlots)
	if err != nil {
		return nil, err
	}
	defer leave()
	if err := s.replayOnce(ctx, pending.FileName(req.ContainerID, req.IfName)); err != nil {
		return nil, fmt.Errorf("%w: an earlier DEL of sandbox %s is not done: %w", attach.ErrTryAgain, req.ContainerID, err)
	}
	result, err := s.Handler.Add(ctx, attach.Request{
		ContainerID: req.ContainerID, IfName: req.IfName, Netns: req.Netns, Path: req.Path,
		NetName: c.Name, NamingScheme: c.NamingScheme, CNIDir: c.CNIDir,
		PodNamespace: args.PodNamespace, PodName: args.PodName, PodUID: args.PodUID,
	})
	if err != nil {
		return nil, err
	}
	return convertResult(result, c.CNIVersion)
}

// del detaches. It looks at neither configuration nor arguments: the journal
// has what it needs, and a plugin of another version must be able to clean up.
func (s *Server) del(ctx context.Context, req *wire.Request) error {
	leave, err := acquireSlot(ctx, s.delSlots)
	if err != nil {
		return err
	}
	defer leave()
	return s.Handler.Del(ctx, attach.Request{
		ContainerID: req.ContainerID, IfName: req.IfName, Netns: req.Netns, Path: req.Path,
	})
}

// acquireSlot waits for one of the places for requests in work.
func acquireSlot(ctx context.Context, places chan struct{}) (leave func(), err error) {
	select {
	case places <- struct{}{}:
		return func() { <-places }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %d requests are in work: %w", attach.ErrTryAgain, cap(places), context.Cause(ctx))
	}
}

// logRequest writes the log line and tells the observer.
func (s *Server) logRequest(req *wire.Request, answer *wire.Error, err error, took time.Duration) {
	var code uint
	if answer != nil {
		code = answer.Code
	}
	// Bad arguments are in the error; the line says of the Pod what it can.
	args, _ := conf.ParseArgs(req.Args)
	log := s.Log.WithValues("command", req.Command, "sandbox", req.ContainerID, "interface", req.IfName,
		"pod", args.PodNamespace+"/"+args.PodName, "took", took.String())
	switch {
	case err != nil:
		log.Error(err, "request failed", "code", code)
	case req.Command == "STATUS":
		log.V(1).Info("request done") // runtimes ask every few seconds
	default:
		log.Info("request done")
	}
	if s.Observe != nil {
		s.Observe(req.Command, code, took)
	}
}
