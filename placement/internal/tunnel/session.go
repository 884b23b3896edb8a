// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
)

// ErrTooManyStreams is why a request is not sent.
var ErrTooManyStreams = fmt.Errorf("%d requests to this cluster are open, and no more are allowed: close some, or try again later", MaxStreams)

// ErrClosed is why a request over a closed connection fails.
var ErrClosed = errors.New("the agent's connection is closed")

// Session is the hub's end of a connection.
type Session struct {
	conn  *notifyingConn
	http2 *http.ClientConn
	slots chan struct{}
	// clientTimeout is ClientTimeout, except in tests.
	clientTimeout time.Duration
}

// NewSession begins to use a connection after the answer 101. It closes the connection if it fails.
func NewSession(ctx context.Context, conn net.Conn) (*Session, error) {
	watched := &notifyingConn{Conn: conn, closed: make(chan struct{})}
	protocols := &http.Protocols{}
	protocols.SetUnencryptedHTTP2(true) // the connection to the API server has TLS
	t := &http.Transport{
		Protocols:   protocols,
		DialContext: func(context.Context, string, string) (net.Conn, error) { return watched, nil },
		HTTP2: &http.HTTP2Config{
			SendPingTimeout: PingAfter, PingTimeout: PingTimeout, WriteByteTimeout: PingAfter + PingTimeout,
			MaxReceiveBufferPerConnection: connectionWindow, MaxReceiveBufferPerStream: streamWindow,
		},
		DisableCompression: true, MaxResponseHeaderBytes: MaxHeaderBytes,
	}
	client, err := t.NewClientConn(ctx, "http", "agent:80")
	if err != nil {
		return nil, errors.Join(fmt.Errorf("begin HTTP/2 with the agent: %w", err), conn.Close())
	}
	return &Session{conn: watched, http2: client, slots: make(chan struct{}, MaxStreams), clientTimeout: ClientTimeout}, nil
}

// Closed is closed when the connection has ended.
func (s *Session) Closed() <-chan struct{} { return s.conn.closed }

// Close ends the connection and all its streams.
func (s *Session) Close() error { return s.conn.Close() }

// RoundTrip implements http.RoundTripper. The URL's scheme and host are ignored.
func (s *Session) RoundTrip(r *http.Request) (*http.Response, error) {
	select {
	case <-s.conn.closed:
		return nil, ErrClosed
	default:
	}
	return s.http2.RoundTrip(r)
}

// Forward sends a client's request to the agent at a path with headers, and copies the answer, also of an upgraded
// connection. It returns an error before it has answered.
func (s *Session) Forward(w http.ResponseWriter, r *http.Request, path string, header http.Header) error {
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	default:
		return ErrTooManyStreams
	}
	out := r.Clone(r.Context())
	out.URL.Scheme, out.URL.Host, out.Host, out.RequestURI = "http", "agent", "agent", ""
	out.URL.Path, out.URL.RawPath = path, ""
	out.Header = header
	client := &patience{timeout: s.clientTimeout, setDeadline: http.NewResponseController(w).SetWriteDeadline}
	log := logr.FromContextOrDiscard(r.Context())
	defer func() { // also when ReverseProxy panics to end an answer
		if client.ended.Load() {
			log.Info("Ended a stream, because its client took nothing while data waited",
				"user", header.Get(UserHeader), "path", path, "timeout", client.timeout.String())
		}
	}()
	if protocol := UpgradeOf(r.Header); protocol != "" {
		return s.forwardUpgrade(w, out, protocol, client)
	}
	return Relay(&patientAnswer{w, client}, r, out, s)
}

// forwardUpgrade forwards an upgraded connection as one stream.
func (s *Session) forwardUpgrade(w http.ResponseWriter, out *http.Request, protocol string, client *patience) error {
	ctx, cancel := context.WithCancel(out.Context())
	defer cancel()
	fromClient, toAgent := io.Pipe()
	defer toAgent.Close()
	out = out.WithContext(ctx)
	out.Header.Set(UpgradeHeader, protocol)
	out.Body, out.ContentLength, out.GetBody = fromClient, -1, nil
	response, err := s.RoundTrip(out)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	upgraded := response.Header.Get(UpgradedHeader)
	if err := CheckResponse(response); err != nil {
		return err
	}
	switch {
	case upgraded == "": // the cluster's API server has refused it
		copyHeader(w.Header(), response.Header)
		w.WriteHeader(response.StatusCode)
		_, _ = io.Copy(&patientAnswer{w, client}, response.Body)
		return nil
	case strings.EqualFold(upgraded, protocol): // API servers answer "websocket", however the client writes it
		return joinClient(w, response, protocol, toAgent, client, cancel)
	}
	return fmt.Errorf("the cluster's API server must switch to %q: it switched to %q", protocol, upgraded)
}

// joinClient answers 101, and joins the client's connection with the stream, which cancel ends.
func joinClient(w http.ResponseWriter, response *http.Response, protocol string, toAgent io.WriteCloser, client *patience, cancel func()) error {
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return fmt.Errorf("take over the client's connection: %w", err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Time{})
	client.setDeadline = conn.SetWriteDeadline
	limitWriteBuffer(conn)
	response.Header.Set("Connection", "Upgrade")
	response.Header.Set("Upgrade", protocol)
	answer := &http.Response{StatusCode: http.StatusSwitchingProtocols, ProtoMajor: 1, ProtoMinor: 1, Header: response.Header}
	if answer.Write(conn) == nil {
		pipe(&patientConn{conn, client}, response.Body, toAgent, buffered.Reader, func(bool) {
			cancel()
			_, _ = toAgent.Close(), conn.Close()
		})
	}
	return nil
}

// clientBuffer is how much the kernel may keep for the client of an upgraded connection. A write waits until a part of
// it has become free, so with megabytes a slow client would look like one that takes nothing.
const clientBuffer = 256 << 10

func limitWriteBuffer(conn net.Conn) {
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	if c, ok := conn.(*net.TCPConn); ok {
		_ = c.SetWriteBuffer(clientBuffer)
	}
}

// pipe copies both directions until one ends. Then it calls stop, which must end the other one, and waits for that:
// HTTP/2 uses the writer of an answer for another stream after the handler has returned.
func pipe(toClient io.Writer, fromAgent io.Reader, toAgent io.Writer, fromClient io.Reader, stop func(clientLeft bool)) {
	answered, asked := make(chan struct{}), make(chan struct{})
	go func() { defer close(answered); _, _ = io.Copy(toClient, fromAgent) }()
	go func() { defer close(asked); _, _ = io.Copy(toAgent, fromClient) }()
	select {
	case <-answered:
		stop(false)
	case <-asked:
		stop(true)
	}
	<-answered
	<-asked
}

// notifyingConn tells when it is closed: HTTP/2 closes a connection on which no pings are answered.
type notifyingConn struct {
	net.Conn

	once   sync.Once
	closed chan struct{}
}

// Close implements net.Conn.
func (c *notifyingConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}
