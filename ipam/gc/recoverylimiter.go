// SPDX-License-Identifier: Apache-2.0

package gc

import (
	"sync"
	"time"

	"github.com/patchbay-cni/patchbay/internal/network"
)

// A compromised node may report rollbacks without end, and each stops all claims of the
// network until every node has reported. Reports of one node may begin maxRecoveries
// recoveries of one network within recoveriesWithin. Other nodes and the controller itself
// notice an etcd that is restored more often.
const (
	maxRecoveries    = 3
	recoveriesWithin = 10 * time.Minute
)

// recoveryLimiter remembers which recoveries began with a node's report of a rollback. Those
// that another controller started are in the network's status.
type recoveryLimiter struct {
	mu    sync.Mutex
	begun map[network.Key]map[string][]time.Time
}

// allow reports whether a node's report of a rollback begins a recovery, and until when the
// reports that follow do not; the zero time if they do.
func (l *recoveryLimiter) allow(key network.Key, node string, now time.Time) (begins bool, until time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var recent []time.Time
	for _, at := range l.begun[key][node] {
		if now.Sub(at) < recoveriesWithin {
			recent = append(recent, at)
		}
	}
	if begins = len(recent) < maxRecoveries; begins {
		recent = append(recent, now)
	}
	if over := len(recent) - maxRecoveries; over >= 0 {
		until = recent[over].Add(recoveriesWithin)
	}
	return begins, until
}

// began counts a recovery for the nodes that reported the rollback.
func (l *recoveryLimiter) began(key network.Key, nodes []string, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.begun == nil {
		l.begun = map[network.Key]map[string][]time.Time{}
	}
	if l.begun[key] == nil {
		l.begun[key] = map[string][]time.Time{}
	}
	for _, node := range nodes {
		kept := l.begun[key][node]
		l.begun[key][node] = append(kept[max(0, len(kept)-maxRecoveries):], now)
	}
}

// forget is for a network that is gone.
func (l *recoveryLimiter) forget(key network.Key) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.begun, key)
}
