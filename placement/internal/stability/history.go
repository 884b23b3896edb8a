// SPDX-License-Identifier: Apache-2.0

package stability

import (
	"math"
	"slices"
	"time"
)

const (
	// HeartbeatInterval is how often an agent, which has a constant of its own, confirms that it has reported all changes
	// while nothing moves.
	HeartbeatInterval = 10 * time.Second
	// DefaultWindow is how long reports must last where move.stable is not set.
	DefaultWindow = 10 * time.Second
	// MaxWindow is how long reports must last at most.
	MaxWindow = 10 * time.Minute
	// minWindow is how long they must last after the first roll-back where no time is set: a zero does not double.
	minWindow = time.Second
)

// Observation is one report of a cluster about one object.
type Observation struct {
	// At is when the hub received the report. It is in force until the next one.
	At time.Time
	// Available is the number of available replicas.
	Available int32
	// Ready is true if the object is ready.
	Ready bool
}

// History has the observations of one object in one cluster, oldest first. Add returns a new one, so that
// others can read a History while it grows.
type History []Observation

// Sample is what a History says about the time until the cluster's last sign of life.
type Sample struct {
	// Available is the smallest number of available replicas in the whole window; 0 if the window is not covered.
	Available int32
	// AtMost is the largest number of available replicas in the whole window; math.MaxInt32 if the window is not covered.
	AtMost int32
	// Ready is true if the object was ready in the whole window.
	Ready bool
	// Until is the end of the window: what the hub knows of the cluster is from this time, or later.
	Until time.Time
}

// Add returns the history with one more observation. It keeps what was in force in the window of this length
// before the observation, and drops what is older: a later Sample must begin in that window.
//
// Observations are added as they are received. One with an earlier time than the last one's gets the last
// one's, because a clock was set back: its true time is later, and a History never claims to know more than
// it does. One that repeats the last one is that one, which is still in force.
func (h History) Add(o Observation, window time.Duration) History {
	from := o.At.Add(-window)
	if len(h) == 0 {
		return History{o}
	}
	last := h[len(h)-1]
	kept := h[h.inForce(from):]
	if o.Available == last.Available && o.Ready == last.Ready {
		return slices.Clone(kept)
	}
	if o.At.Before(last.At) {
		o.At = last.At
	}
	return append(slices.Clip(kept), o) // clipped: append copies
}

// inForce returns the index of the observation that was in force at a time; 0 if none was.
func (h History) inForce(at time.Time) int {
	for i := len(h) - 1; i > 0; i-- {
		if !h[i].At.After(at) {
			return i
		}
	}
	return 0
}

// Sample returns what all reports in force in the window of this length before until say, and those after it. The
// cluster must be known to have reported all changes before until.
func (h History) Sample(until time.Time, stable time.Duration) Sample {
	s := Sample{AtMost: math.MaxInt32, Until: until}
	from := until.Add(-max(0, stable))
	if len(h) == 0 || h[0].At.After(from) {
		return s
	}
	s.Available, s.AtMost, s.Ready = math.MaxInt32, 0, true
	for _, o := range h[h.inForce(from):] {
		s.Available, s.AtMost, s.Ready = min(s.Available, o.Available), max(s.AtMost, o.Available), s.Ready && o.Ready
	}
	return s
}

// Window returns how long reports must last after some roll-backs of a move: twice as long after each, because
// replicas failed after reports had said for that long that they are available.
func Window(stable time.Duration, rollbacks int32) time.Duration {
	stable = max(0, stable)
	for ; rollbacks > 0 && stable < MaxWindow; rollbacks-- {
		stable = max(minWindow, 2*stable)
	}
	return min(stable, MaxWindow)
}
