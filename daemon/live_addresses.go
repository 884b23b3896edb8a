// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"net/netip"
	"sync"
	"time"
)

// liveAddressesTTL is how long one reading of the node's interfaces serves. At its start the
// daemon asks for each of its networks, and each reading enters every sandbox. What
// is asked about are interfaces of former lives, which can only go: an older reading
// spares an address for longer than it has to, and never gives one away.
const liveAddressesTTL = 10 * time.Second

// liveAddresses shares readings of the addresses on this node's interfaces.
type liveAddresses struct {
	// read makes a reading.
	read func(context.Context) (map[netip.Addr]bool, error)

	mu   sync.Mutex
	at   time.Time
	last map[netip.Addr]bool
}

// get returns a reading that is at most liveFor old; the caller must not change it.
func (l *liveAddresses) get(ctx context.Context) (map[netip.Addr]bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last != nil && time.Since(l.at) < liveAddressesTTL {
		return l.last, nil
	}
	at := time.Now()
	live, err := l.read(ctx)
	if err != nil {
		return nil, err
	}
	l.at, l.last = at, live
	return live, nil
}
