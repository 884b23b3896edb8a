// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"hash/maphash"
	"time"

	"golang.org/x/time/rate"
)

const (
	// eventBurst and eventInterval bound the Events of one namespace. A tenant who creates Pods chooses
	// how many Events there are; a mistake in a Pod template is seen in the first of them.
	eventBurst    = 20
	eventInterval = 30 * time.Second
	// eventLimiterCount bounds the memory. Namespaces share limiters by a seeded hash, which their
	// tenants cannot predict.
	eventLimiterCount = 256
)

// eventLimiter limits the Events of each namespace.
type eventLimiter struct {
	limiters [eventLimiterCount]*rate.Limiter
	seed     maphash.Seed
}

func newEventLimiter() *eventLimiter {
	l := &eventLimiter{seed: maphash.MakeSeed()}
	for i := range l.limiters {
		l.limiters[i] = rate.NewLimiter(rate.Every(eventInterval), eventBurst)
	}
	return l
}

// allow reports whether the namespace may have one more Event, and counts it.
func (l *eventLimiter) allow(namespace string, now time.Time) bool {
	return l.limiters[maphash.String(l.seed, namespace)%eventLimiterCount].AllowN(now, 1)
}
