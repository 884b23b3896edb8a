// SPDX-License-Identifier: Apache-2.0

package addresses

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/patchbay-cni/patchbay/ipam/claims"
)

// Config is what a Controller needs to know. Grace and Registry are required.
type Config struct {
	// Grace is how long a Node must be gone without interruption before its
	// addresses and DanmEps are taken from it.
	Grace time.Duration
	// Registry gets the metrics.
	Registry prometheus.Registerer
	// Every is the time between two looks at all networks; 45 s when zero, so
	// that a bit that nobody covers is free within 2 minutes.
	Every time.Duration
	// Pace is the least time between a change of a network and the look at it;
	// 10 s when zero. Changes in between cost nothing: each claim is one.
	Pace time.Duration
	// Hurry is the time between looks at a network in recovery; 3 s when zero.
	Hurry time.Duration
	// Timeout bounds the work on one network; 1 min when zero.
	Timeout time.Duration
	// Workers is how many networks are worked at a time; 4 when zero.
	Workers int
	// Now is the clock; time.Now when nil.
	Now func() time.Time
	// Uncovered counts the bits that neither an entry nor one of the endpoints
	// covers; claims.Uncovered when nil.
	Uncovered func(*claims.Object, []claims.Endpoint) (int64, error)
}

func (c Config) withDefaults() Config {
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{
		{&c.Every, 45 * time.Second}, {&c.Pace, 10 * time.Second}, {&c.Hurry, 3 * time.Second}, {&c.Timeout, time.Minute},
	} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	if c.Workers == 0 {
		c.Workers = 4
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Uncovered == nil {
		c.Uncovered = claims.Uncovered
	}
	return c
}
