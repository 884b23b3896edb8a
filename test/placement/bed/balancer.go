// SPDX-License-Identifier: Apache-2.0

package bed

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Balancer is a load balancer of layer 4. As such ones do, it forgets a connection on
// which nothing was said for too long, and neither side hears of that.
type Balancer struct {
	listener    net.Listener
	target      string
	idleTimeout time.Duration
	now         func() time.Time

	mu        sync.Mutex
	closed    bool
	flows     []*flow
	idleDrops int
	all       sync.WaitGroup
}

// flow is one connection, from both sides.
type flow struct {
	in, out    net.Conn
	lastActive atomic.Int64 // when, in nanoseconds
	dropped    atomic.Bool
}

// NewBalancer takes connections from the listener to the target. Idle is how long one may
// be silent; 0 is for ever.
func NewBalancer(listener net.Listener, target string, idle time.Duration) *Balancer {
	return newBalancer(listener, target, idle, time.Now)
}

func newBalancer(listener net.Listener, target string, idle time.Duration, now func() time.Time) *Balancer {
	b := &Balancer{listener: listener, target: target, idleTimeout: idle, now: now}
	b.all.Go(b.serve)
	return b
}

// Address is where clients find the balancer.
func (b *Balancer) Address() string { return b.listener.Addr().String() }

// Connections tells how many were made so far.
func (b *Balancer) Connections() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.flows)
}

// IdleDrops tells on how many connections something was said after too long a silence.
func (b *Balancer) IdleDrops() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.idleDrops
}

// DropFlows forgets all present connections.
func (b *Balancer) DropFlows() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, f := range b.flows {
		f.dropped.Store(true)
	}
}

// Close ends the balancer and its connections.
func (b *Balancer) Close() error {
	err := b.listener.Close()
	b.mu.Lock()
	b.closed = true
	for _, f := range b.flows {
		_ = errors.Join(f.in.Close(), f.out.Close())
	}
	b.mu.Unlock()
	b.all.Wait()
	return err
}

func (b *Balancer) serve() {
	for {
		in, err := b.listener.Accept()
		if err != nil {
			return // closed
		}
		if out, err := net.Dial("tcp", b.target); err == nil {
			b.forward(in, out)
		} else {
			_ = in.Close()
		}
	}
}

func (b *Balancer) forward(in, out net.Conn) {
	f := &flow{in: in, out: out}
	f.lastActive.Store(b.now().UnixNano())
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		_ = errors.Join(in.Close(), out.Close())
		return
	}
	b.flows = append(b.flows, f)
	b.all.Go(func() { b.copy(f, out, in) })
	b.all.Go(func() { b.copy(f, in, out) })
}

// copy passes on what one side says. Of a lost connection each side is alone.
func (b *Balancer) copy(f *flow, to, from net.Conn) {
	defer from.Close()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		b.recordActivity(f, n)
		lost := f.dropped.Load()
		if !lost && n > 0 {
			_, werr := to.Write(buf[:n])
			err = errors.Join(err, werr)
		}
		if err != nil {
			if !lost {
				_ = to.Close()
			}
			return
		}
	}
}

// recordActivity notes that a side has said something, or has ended, and forgets a connection that
// was silent for too long.
func (b *Balancer) recordActivity(f *flow, n int) {
	now := b.now().UnixNano()
	before := f.lastActive.Swap(now)
	if b.idleTimeout == 0 || time.Duration(now-before) <= b.idleTimeout || f.dropped.Swap(true) || n == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.idleDrops++
}
