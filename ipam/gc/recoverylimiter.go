// SPDX-License-Identifier: Apache-2.0

package gc

import (
	"sync"
	"time"

	"github.com/patchbay-cni/patchbay/internal/network"
)

// A compromised node may report rollbacks endlessly, and each report stops all claims in the network
// until every node has reported. Reports of one node may start maxRecoveries recoveries of one
// network within recoveriesWithin. If etcd is restored more often, other nodes and the controller
// itself detect it.
const (
	maxRecoveries    = 3
	recoveriesWithin = 10 * time.Minute
)

// recoveryLimiter records the recoveries that a node's reports have started. The status of the network
// has those that another controller started.
type recoveryLimiter struct {
	mu    sync.Mutex
	begun map[network.Key]map[string][]time.Time
}

// allow reports whether a node's report of a rollback may start a recovery, and until when further
// reports must not; the zero time means that they may.
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

// forget drops the records of a deleted network.
func (l *recoveryLimiter) forget(key network.Key) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.begun, key)
}
