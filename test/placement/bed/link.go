// SPDX-License-Identifier: Apache-2.0

package bed

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"sync"
)

// Link carries connections to the hub as they are, TLS and watches included (apitest's
// Proxy ends both), and breaks them when told.
type Link struct {
	listener net.Listener
	target   string

	mu       sync.Mutex
	cut      bool
	unfrozen chan struct{} // closed unless the link is frozen
	frozen   bool
	conns    map[net.Conn]struct{}
	accepted int
	all      sync.WaitGroup
}

// NewLink listens on a port of its own and forwards to the address.
func NewLink(address string) (*Link, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, fmt.Errorf("parse address of the hub: %w", err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("open port of a link: %w", err)
	}
	open := make(chan struct{})
	close(open)
	l := &Link{listener: listener, target: u.Host, conns: map[net.Conn]struct{}{}, unfrozen: open}
	l.all.Go(l.serve)
	return l, nil
}

// URL is the hub's address behind the link.
func (l *Link) URL() string { return "https://" + l.listener.Addr().String() }

// Cut ends all connections, and new ones at once.
func (l *Link) Cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = true
	for c := range l.conns {
		_ = c.Close()
	}
}

// Freeze keeps connections open and passes nothing on any more.
func (l *Link) Freeze() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.frozen {
		l.frozen, l.unfrozen = true, make(chan struct{})
	}
}

// Heal undoes Cut and Freeze.
func (l *Link) Heal() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = false
	if l.frozen {
		l.frozen = false
		close(l.unfrozen)
	}
}

// Connections tells how many were made so far.
func (l *Link) Connections() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.accepted
}

// Close ends the link.
func (l *Link) Close() error {
	l.Heal()
	err := l.listener.Close()
	l.Cut()
	l.all.Wait()
	return err
}

func (l *Link) serve() {
	for {
		in, err := l.listener.Accept()
		if err != nil {
			return // closed
		}
		if !l.track(in) {
			continue
		}
		l.all.Go(func() {
			defer l.untrack(in)
			l.forward(in)
		})
	}
}

func (l *Link) forward(in net.Conn) {
	out, err := net.Dial("tcp", l.target)
	if err != nil || !l.track(out) {
		return
	}
	defer l.untrack(out)
	var both sync.WaitGroup
	both.Go(func() { l.copy(out, in) })
	both.Go(func() { l.copy(in, out) })
	both.Wait()
}

// copy passes bytes on until either side ends, then ends both.
func (l *Link) copy(to, from net.Conn) {
	defer func() { _ = errors.Join(to.Close(), from.Close()) }()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		l.mu.Lock()
		thaw := l.unfrozen
		l.mu.Unlock()
		<-thaw
		if _, werr := to.Write(buf[:n]); err != nil || werr != nil {
			return
		}
	}
}

func (l *Link) track(c net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cut {
		_ = c.Close()
		return false
	}
	l.conns[c] = struct{}{}
	l.accepted++
	return true
}

func (l *Link) untrack(c net.Conn) {
	_ = c.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, c)
}
