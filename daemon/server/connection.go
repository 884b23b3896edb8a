// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"io"
	"net"
	"time"

	"github.com/patchbay-cni/patchbay/cni/conf"
	"github.com/patchbay-cni/patchbay/cni/wire"
)

// errHungUp ends an ADD whose plugin was killed: nobody would take its result.
var errHungUp = errors.New("the plugin hung up")

// serve answers the one request of a connection. Accept ends when the daemon
// stops: what has not arrived then is dropped, and the plugin asks the daemon's
// next life. Work ends when the time for requests in work is over.
func (s *Server) serve(accept, work context.Context, conn net.Conn) {
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(s.Limits.Read))
	stopped := context.AfterFunc(accept, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	var req wire.Request
	err := wire.Read(conn, &req)
	if !stopped() {
		return
	}
	if errors.Is(err, io.EOF) {
		return // somebody looked whether we are there
	}
	var res *wire.Response
	if err != nil {
		res = refuse(wire.Errorf(wire.CodeDecode, "read request: %w", err))
	} else {
		res = s.request(work, conn, &req)
	}
	_ = conn.SetDeadline(time.Now().Add(s.Limits.Read))
	if err := wire.Write(conn, res); err != nil {
		s.Log.Error(err, "answer is lost", "command", req.Command, "sandbox", req.ContainerID)
	}
}

// request does one request and reports on it.
func (s *Server) request(work context.Context, conn net.Conn, req *wire.Request) *wire.Response {
	start := time.Now()
	ctx, cancel := context.WithTimeout(work, s.Limits.Work)
	defer cancel()
	if req.Command == "ADD" {
		ctx = whileConnected(ctx, conn)
	}
	result, err := s.dispatch(ctx, req)
	res := &wire.Response{Result: result}
	if err != nil {
		res = refuse(err)
	}
	s.report(req, res.Error, err, time.Since(start))
	return res
}

// whileConnected ends the context when the peer closes the connection. After
// its request a plugin sends nothing, so that any end of Read is the end. The
// goroutine ends with the connection.
func whileConnected(ctx context.Context, conn net.Conn) context.Context {
	ctx, cancel := context.WithCancelCause(ctx)
	_ = conn.SetReadDeadline(time.Time{})
	go func() {
		var b [1]byte
		_, _ = conn.Read(b[:])
		cancel(errHungUp)
	}()
	return ctx
}

// report writes the log line and tells the observer.
func (s *Server) report(req *wire.Request, answer *wire.Error, err error, took time.Duration) {
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
