// SPDX-License-Identifier: Apache-2.0

package debugapi

import (
	"fmt"
	"sync"
	"time"

	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/cache"

	"github.com/patchbay-cni/patchbay/placement/internal/tunnel"
)

// Bounds of the requests at this replica. The API server does not bound them: it takes them for long-running ones.
const (
	// maxPerCluster is how many requests a user may have open for a cluster, of all its tunnel.MaxStreams.
	maxPerCluster = tunnel.MaxStreams / 4
	// maxPerUser is how many requests a user may have open for all clusters.
	maxPerUser = 200
	// ratePerUser and burstPerUser bound the requests of a user in a second: kubectl's own bounds.
	ratePerUser, burstPerUser = 50, 300
)

// knownUsers is how many users have a rate, rateLifetime after their last request at the longest. By then the burst is
// full again.
const (
	knownUsers   = 10_000
	rateLifetime = time.Minute
)

// limits bound the requests of each user. A request counts from before its reviews until its end.
type limits struct {
	mu         sync.Mutex
	perUser    map[string]int
	perCluster map[userAt]int
	rates      *cache.LRUExpireCache // of *rate.Limiter by user
}

func newLimits() *limits {
	return &limits{perUser: map[string]int{}, perCluster: map[userAt]int{}, rates: cache.NewLRUExpireCache(knownUsers)}
}

// userAt is a user of a cluster.
type userAt struct{ user, cluster string }

// begin counts a request, and returns what ends it, or an error when its user has too many.
func (l *limits) begin(user, cluster string) (end func(), err error) {
	at := userAt{user, cluster}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case !l.rate(user).Allow():
		return nil, tooMany(fmt.Sprintf("user %s must send at most %d requests in a second", user, ratePerUser))
	case l.perCluster[at] >= maxPerCluster:
		return nil, tooMany(fmt.Sprintf("user %s must have at most %d open requests for Cluster %s: end a watch or a stream", user, maxPerCluster, cluster))
	case l.perUser[user] >= maxPerUser:
		return nil, tooMany(fmt.Sprintf("user %s must have at most %d open requests: end a watch or a stream", user, maxPerUser))
	}
	l.perUser[user]++
	l.perCluster[at]++
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		decrement(l.perUser, user)
		decrement(l.perCluster, at)
	}, nil
}

// rate returns a user's limiter. The caller holds the mutex.
func (l *limits) rate(user string) *rate.Limiter {
	known, _ := l.rates.Get(user)
	limiter, ok := known.(*rate.Limiter)
	if !ok {
		limiter = rate.NewLimiter(ratePerUser, burstPerUser)
	}
	l.rates.Add(user, limiter, rateLifetime)
	return limiter
}

func decrement[K comparable](counts map[K]int, key K) {
	if counts[key]--; counts[key] <= 0 {
		delete(counts, key)
	}
}

// tooMany returns an answer after which client-go tries again.
func tooMany(message string) error { return apierrors.NewTooManyRequests(message, 1) }
