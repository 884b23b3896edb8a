// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// Serve answers the hub's requests over a connection until it is closed or ctx ends. It closes the connection.
func Serve(ctx context.Context, conn io.ReadWriteCloser, handler http.Handler) error {
	protocols := &http.Protocols{}
	protocols.SetUnencryptedHTTP2(true)
	watched := &notifyingConn{Conn: streamConn{conn}, closed: make(chan struct{})}
	server := &http.Server{
		Handler: handler, Protocols: protocols, ReadHeaderTimeout: time.Minute, ErrorLog: SilentLog(),
		BaseContext: func(net.Listener) context.Context { return ctx },
		HTTP2: &http.HTTP2Config{
			// The handler rejects what is too much with a clear message, so the limit here is higher.
			MaxConcurrentStreams: 2 * MaxStreams,
			SendPingTimeout:      PingAfter, PingTimeout: PingTimeout, WriteByteTimeout: PingAfter + PingTimeout,
			MaxReceiveBufferPerConnection: connectionWindow, MaxReceiveBufferPerStream: streamWindow,
		},
	}
	defer context.AfterFunc(ctx, func() { _ = watched.Close() })()
	err := server.Serve(&singleListener{conn: watched})
	if closeErr := server.Close(); err == nil || errors.Is(err, net.ErrClosed) {
		err = closeErr
	}
	if err != nil {
		return fmt.Errorf("serve the hub's requests: %w", err)
	}
	return nil
}

// ForwardUpgrade asks an API server to switch protocols, and joins its connection with the stream of the hub's
// request. The transport must use HTTP/1.1. It returns an error before it has answered.
func ForwardUpgrade(w http.ResponseWriter, stream, out *http.Request, transport http.RoundTripper) error {
	out.Header.Set("Connection", "Upgrade")
	out.Header.Set("Upgrade", stream.Header.Get(UpgradeHeader))
	response, err := transport.RoundTrip(out)
	if err != nil {
		return fmt.Errorf("ask the cluster's API server to switch protocols: %w", err)
	}
	defer response.Body.Close()
	backend, upgraded := response.Body.(io.ReadWriteCloser)
	upgraded = upgraded && response.StatusCode == http.StatusSwitchingProtocols
	protocol := response.Header.Get("Upgrade")
	if !upgraded {
		if err := CheckResponse(response); err != nil {
			return err
		}
		copyHeader(w.Header(), response.Header)
		w.WriteHeader(response.StatusCode)
		_, _ = io.Copy(w, response.Body)
		return nil
	}
	if err := cleanHeader(response); err != nil {
		return err
	}
	copyHeader(w.Header(), response.Header)
	w.Header().Set(UpgradedHeader, protocol)
	w.WriteHeader(http.StatusOK)
	client := flushWriter{w, http.NewResponseController(w)}
	if client.controller.Flush() == nil {
		pipe(client, backend, backend, stream.Body, func(clientLeft bool) {
			_ = backend.Close()
			past := time.Unix(1, 0)
			_ = client.controller.SetReadDeadline(past)
			if clientLeft { // else the hub must get the end of the answer, and not a reset
				_ = client.controller.SetWriteDeadline(past)
			}
		})
	}
	return nil
}

// flushWriter sends each write at once.
type flushWriter struct {
	io.Writer

	controller *http.ResponseController
}

// Write implements io.Writer.
func (w flushWriter) Write(p []byte) (int, error) {
	n, err := w.Writer.Write(p)
	if err == nil {
		err = w.controller.Flush()
	}
	return n, err
}

// singleListener returns one connection, and then blocks until that is closed.
type singleListener struct {
	conn *notifyingConn
	once sync.Once
}

// Accept implements net.Listener.
func (l *singleListener) Accept() (net.Conn, error) {
	var conn net.Conn
	l.once.Do(func() { conn = l.conn })
	if conn != nil {
		return conn, nil
	}
	<-l.conn.closed
	return nil, net.ErrClosed
}

// Close implements net.Listener.
func (l *singleListener) Close() error { return l.conn.Close() }

// Addr implements net.Listener.
func (l *singleListener) Addr() net.Addr { return tunnelAddr{} }

// streamConn makes a connection of the body of an answer 101. It has no deadlines: pings find a dead connection.
type streamConn struct {
	io.ReadWriteCloser
}

// LocalAddr implements net.Conn.
func (streamConn) LocalAddr() net.Addr { return tunnelAddr{} }

// RemoteAddr implements net.Conn.
func (streamConn) RemoteAddr() net.Addr { return tunnelAddr{} }

// SetDeadline implements net.Conn.
func (streamConn) SetDeadline(time.Time) error { return nil }

// SetReadDeadline implements net.Conn.
func (streamConn) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline implements net.Conn.
func (streamConn) SetWriteDeadline(time.Time) error { return nil }

// tunnelAddr is the address of both ends.
type tunnelAddr struct{}

// Network implements net.Addr.
func (tunnelAddr) Network() string { return "tunnel" }

// String implements net.Addr.
func (tunnelAddr) String() string { return "hub" }
