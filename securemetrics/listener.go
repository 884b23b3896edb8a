// SPDX-License-Identifier: Apache-2.0

package securemetrics

import (
	"net"
	"net/netip"
	"sync"

	"golang.org/x/net/netutil"
)

// Connections that are open at a time.
const (
	// connections of all clients; more wait.
	connections = 256
	// connectionsPerClient are those of one address; more are closed. A scraper has one or two.
	connectionsPerClient = 32
)

// fair is a listener with bounds, so that a client without a token can neither use up the
// memory of a program nor, by itself, the connections that others need.
type fair struct {
	net.Listener

	mu   sync.Mutex
	open map[netip.Addr]int
}

func newFair(l net.Listener) *fair {
	return &fair{Listener: netutil.LimitListener(l, connections), open: map[netip.Addr]int{}}
}

// Accept implements net.Listener.
func (l *fair) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		client, _ := netip.ParseAddrPort(c.RemoteAddr().String())
		if l.enter(client.Addr()) {
			return &fairConn{Conn: c, leave: sync.OnceFunc(func() { l.leave(client.Addr()) })}, nil
		}
		_ = c.Close()
	}
}

func (l *fair) enter(client netip.Addr) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[client] >= connectionsPerClient {
		return false
	}
	l.open[client]++
	return true
}

func (l *fair) leave(client netip.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[client]--; l.open[client] == 0 {
		delete(l.open, client)
	}
}

// fairConn is a connection that counts.
type fairConn struct {
	net.Conn
	leave func()
}

// Close implements net.Conn.
func (c *fairConn) Close() error {
	defer c.leave()
	return c.Conn.Close()
}
