// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"syscall"
	"time"
)

// ErrUnavailable means that no daemon answered: its socket is missing or refuses connections, or the
// connection ended before an answer, as when the daemon restarts. The request may have had an
// effect; ADD and DEL are idempotent.
var ErrUnavailable = errors.New("node daemon is unavailable")

// Call sends one request to the daemon that listens on the unix socket and returns its answer. The
// context bounds the whole exchange. After an error that wraps ErrUnavailable, a retry can
// succeed.
func Call(ctx context.Context, socket string, req *Request) (*Response, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", socket, markUnavailable(err))
	}
	defer func() { _ = conn.Close() }()
	// A cancelled context ends reads and writes like a deadline that has passed.
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	res, err := exchange(conn, req)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return nil, fmt.Errorf("%s over %s: %w", req.Command, socket, err)
	}
	return res, nil
}

// exchange sends one request and reads one answer on an open connection.
func exchange(conn net.Conn, req *Request) (*Response, error) {
	if err := WriteFrame(conn, req); err != nil {
		return nil, markUnavailable(err)
	}
	res := &Response{}
	if err := ReadFrame(conn, res); err != nil {
		return nil, markUnavailable(err)
	}
	return res, nil
}

// markUnavailable adds ErrUnavailable to the errors of a daemon that does not run: the socket is
// missing, no process listens, or the connection ended before the end of the answer.
func markUnavailable(err error) error {
	for _, sign := range []error{
		fs.ErrNotExist, syscall.ECONNREFUSED, syscall.ECONNRESET, syscall.EPIPE, io.EOF, io.ErrUnexpectedEOF,
		syscall.EAGAIN, // its queue of connections is full (unix(7), connect)
	} {
		if errors.Is(err, sign) {
			return fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
	}
	return err
}
