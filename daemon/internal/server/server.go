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

	"github.com/patchbay-cni/patchbay/cni/config"
	"github.com/patchbay-cni/patchbay/cni/wire"
	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
	"github.com/patchbay-cni/patchbay/internal/heartbeat"
	"github.com/patchbay-cni/patchbay/internal/pending"
)

// Handler handles requests. Both methods are idempotent and serialize the requests of one sandbox.
// attach.Service implements it.
type Handler interface {
	// Add returns the result in version 1.1.0 of CNI.
	Add(ctx context.Context, req attach.Request) (*types100.Result, error)
	// Del succeeds for an unknown sandbox.
	Del(ctx context.Context, req attach.Request) error
}

// Config configures a Server.
type Config struct {
	// Socket is the path of the Unix socket. Run creates its folder, which also has the heartbeat file.
	Socket string
	// PendingDir is the folder of the DELs that the plugin has stored.
	PendingDir string
	// Handler handles ADD and DEL.
	Handler Handler
	// Log receives one message per request.
	Log logr.Logger
	// Observe is called after each request with its command, its CNI error code (0 for success) and
	// its duration. It may be nil.
	Observe func(command string, code uint, took time.Duration)
	// Limits bounds requests. The zero value means DefaultLimits.
	Limits Limits
}

// Limits has the limits and intervals of a Server.
type Limits struct {
	// MaxAdds and MaxDels bound the ADDs and DELs in progress. They are separate, because ADDs that
	// wait for a free address must not block the DELs that free one.
	MaxAdds, MaxDels int
	// IOTimeout bounds the time to read a request, and the time to write a response.
	IOTimeout time.Duration
	// RequestTimeout bounds one request. It is below the plugin's timeout.
	RequestTimeout time.Duration
	// ShutdownGracePeriod is when the requests in progress are canceled after Run's context has ended. What they roll back
	// may take longer.
	ShutdownGracePeriod time.Duration
	// ReplayInterval is the time between two replays of pending DELs.
	ReplayInterval time.Duration
	// HeartbeatInterval is the time between two writes of the heartbeat file.
	HeartbeatInterval time.Duration
}

// DefaultLimits returns the limits for a node with a few hundred Pods.
func DefaultLimits() Limits {
	return Limits{
		MaxAdds: 64, MaxDels: 64, IOTimeout: 5 * time.Second, RequestTimeout: 90 * time.Second,
		ShutdownGracePeriod: 20 * time.Second, ReplayInterval: 2 * time.Second, HeartbeatInterval: 5 * time.Second,
	}
}

// Server serves the socket while Run runs.
type Server struct {
	Config
	addSlots, delSlots chan struct{}
	// replayGroup makes an ADD wait for a replay of its sandbox's DEL.
	replayGroup singleflight.Group
}

// New returns a Server.
func New(c Config) *Server {
	c.Limits = cmp.Or(c.Limits, DefaultLimits())
	return &Server{Config: c, addSlots: make(chan struct{}, c.Limits.MaxAdds), delSlots: make(chan struct{}, c.Limits.MaxDels)}
}

// Run serves until ctx ends, and then waits for the requests in progress. The caller must hold the
// journal's lock, so that no other daemon serves.
func (s *Server) Run(ctx context.Context) error {
	if err := pending.MakeDir(s.PendingDir); err != nil {
		return fmt.Errorf("create folder of pending requests: %w", err)
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

// runHeartbeat touches the heartbeat file until ctx ends, and then once more: a restart may take one
// minute from then on.
func (s *Server) runHeartbeat(ctx context.Context) {
	path := wire.HeartbeatPath(s.Socket)
	touch := func() {
		if err := heartbeat.Touch(path); err != nil {
			s.Log.Error(err, "Failed to write the heartbeat file")
		}
	}
	ticker := time.NewTicker(s.Limits.HeartbeatInterval)
	defer ticker.Stop()
	for ctx.Err() == nil {
		touch()
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
	touch()
}

// acceptRetryDelay is the delay after a failed accept.
const acceptRetryDelay = 50 * time.Millisecond

// accept accepts connections until ctx ends, and then waits for the open ones.
func (s *Server) accept(ctx context.Context, l net.Listener) {
	requestCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	var conns sync.WaitGroup
	for ctx.Err() == nil {
		conn, err := l.Accept()
		if err == nil {
			conns.Go(func() { s.handleConnection(ctx, requestCtx, conn) })
		} else if ctx.Err() == nil {
			// The process may have no free file descriptor until a request ends.
			s.Log.Error(err, "Failed to accept a connection", "socket", s.Socket)
			time.Sleep(acceptRetryDelay)
		}
	}
	grace := time.AfterFunc(s.Limits.ShutdownGracePeriod, cancel)
	defer grace.Stop()
	conns.Wait()
}

// errHungUp cancels an ADD whose plugin was killed, because its result would be lost.
var errHungUp = errors.New("the plugin closed the connection")

// handleConnection handles the one request of a connection. When acceptCtx ends, it drops a request
// that has not arrived completely, and the plugin sends it to the next daemon. requestCtx ends after
// the shutdown grace period.
func (s *Server) handleConnection(acceptCtx, requestCtx context.Context, conn net.Conn) {
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(s.Limits.IOTimeout))
	stopped := context.AfterFunc(acceptCtx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	var req wire.Request
	err := wire.ReadFrame(conn, &req)
	if !stopped() {
		return
	}
	if errors.Is(err, io.EOF) {
		return // checkVacant of another daemon
	}
	var res *wire.Response
	if err != nil {
		res = errorResponse(wire.Errorf(wire.CodeDecode, "read request: %w", err))
	} else {
		res = s.handleRequest(requestCtx, conn, &req)
	}
	_ = conn.SetDeadline(time.Now().Add(s.Limits.IOTimeout))
	if err := wire.WriteFrame(conn, res); err != nil {
		s.Log.Error(err, "Failed to send the response", "command", req.Command, "sandbox", req.ContainerID)
	}
}

// handleRequest handles one request and logs it.
func (s *Server) handleRequest(ctx context.Context, conn net.Conn, req *wire.Request) *wire.Response {
	start := time.Now()
	ctx, cancel := context.WithTimeout(ctx, s.Limits.RequestTimeout)
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

// cancelOnHangUp returns a context that is canceled when the peer closes the connection. The plugin
// sends nothing after its request, so that a Read only returns when the connection is closed. The
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

// dispatch validates a request and handles it.
func (s *Server) dispatch(ctx context.Context, req *wire.Request) (json.RawMessage, error) {
	if err := config.ValidateRequest(req); err != nil {
		return nil, err
	}
	switch req.Command {
	case "ADD":
		return s.add(ctx, req)
	case "DEL":
		return nil, s.del(ctx, req)
	case "STATUS":
		return nil, nil // the response itself is the status
	}
	return nil, wire.Errorf(wire.CodeNotImplemented, "%s is not implemented yet", req.Command)
}

// add handles an ADD, after a pending DEL of the same sandbox.
func (s *Server) add(ctx context.Context, req *wire.Request) (json.RawMessage, error) {
	c, err := config.ParseConfig(req.Config)
	if err != nil {
		return nil, err
	}
	if len(c.PrevResult) > 0 {
		return nil, wire.Errorf(wire.CodeConfig,
			"network configuration: prevResult is set: %q must be the first plugin of list %q", c.Type, c.Name)
	}
	args, err := config.ParseArgs(req.Args)
	if err != nil {
		return nil, err
	}
	release, err := acquireSlot(ctx, s.addSlots)
	if err != nil {
		return nil, err
	}
	defer release()
	if err := s.replayOnce(ctx, pending.FileName(req.ContainerID, req.IfName)); err != nil {
		return nil, fmt.Errorf("%w: an earlier DEL of sandbox %s has not succeeded yet: %w", attach.ErrTryAgain, req.ContainerID, err)
	}
	result, err := s.Handler.Add(ctx, attach.Request{
		ContainerID: req.ContainerID, IfName: req.IfName, Netns: req.Netns, Path: req.Path,
		NetName: c.Name, NamingScheme: c.NamingScheme, CNIDir: c.CNIDir, RuntimeConfig: c.RuntimeConfig,
		PodNamespace: args.PodNamespace, PodName: args.PodName, PodUID: args.PodUID,
	})
	if err != nil {
		return nil, err
	}
	return convertResult(result, c.CNIVersion)
}

// del handles a DEL. It ignores configuration and arguments: the journal has all that is needed, and
// a plugin of another version must be able to clean up.
func (s *Server) del(ctx context.Context, req *wire.Request) error {
	release, err := acquireSlot(ctx, s.delSlots)
	if err != nil {
		return err
	}
	defer release()
	return s.Handler.Del(ctx, attach.Request{
		ContainerID: req.ContainerID, IfName: req.IfName, Netns: req.Netns, Path: req.Path,
	})
}

// acquireSlot waits for a slot of the requests in progress.
func acquireSlot(ctx context.Context, slots chan struct{}) (release func(), err error) {
	select {
	case slots <- struct{}{}:
		return func() { <-slots }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %d requests are in progress: %w", attach.ErrTryAgain, cap(slots), context.Cause(ctx))
	}
}

// logRequest logs a request and observes it.
func (s *Server) logRequest(req *wire.Request, response *wire.Error, err error, took time.Duration) {
	var code uint
	if response != nil {
		code = response.Code
	}
	// An error about the arguments is in err already.
	args, _ := config.ParseArgs(req.Args)
	log := s.Log.WithValues("command", req.Command, "sandbox", req.ContainerID, "interface", req.IfName,
		"pod", args.PodNamespace+"/"+args.PodName, "took", took.String())
	switch {
	case err != nil:
		log.Error(err, "Failed to handle the request", "code", code)
	case req.Command == "STATUS":
		log.V(1).Info("Handled the request") // runtimes send STATUS every few seconds
	default:
		log.Info("Handled the request")
	}
	if s.Observe != nil {
		s.Observe(req.Command, code, took)
	}
}
