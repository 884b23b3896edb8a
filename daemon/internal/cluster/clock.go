// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"time"

	"golang.org/x/sys/unix"
)

// clocks are how the age of a moment is told. Go's monotonic clock stands still
// while the machine is suspended, CLOCK_BOOTTIME does not, but reading the latter is
// a system call (300 ns), which is too long for what every claim asks. The wall
// clock costs no system call and moves over a suspend too, since the kernel adds
// the time slept to both before any process runs again. So wall and monotonic clock
// tell whether the machine slept, or somebody set the time: then, and only then,
// CLOCK_BOOTTIME is asked.
type clocks struct {
	// ticks are wall and monotonic clock, each since a point of its own.
	ticks func() (wall, monotonic time.Duration)
	// boot is CLOCK_BOOTTIME.
	boot func() (time.Duration, error)
}

// clockTolerance is how far wall and monotonic clock may come apart unasked.
const clockTolerance = 100 * time.Millisecond

// unknownAge is the age of a moment that cannot be told.
const unknownAge = time.Duration(1<<63 - 1)

// systemClocks are the machine's.
func systemClocks() clocks {
	start := time.Now()
	return clocks{
		ticks: func() (wall, monotonic time.Duration) {
			now := time.Now()
			return time.Duration(now.UnixNano()), now.Sub(start)
		},
		boot: func() (time.Duration, error) {
			var ts unix.Timespec
			err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts)
			return time.Duration(ts.Nano()), err
		},
	}
}

// clockReading is one reading of all clocks.
type clockReading struct {
	wall, monotonic, boot time.Duration
}

// read reads all clocks.
func (c *clocks) read() (clockReading, error) {
	// First the one that counts all the time: a sleep between the readings makes the
	// moment older, never younger.
	boot, err := c.boot()
	wall, monotonic := c.ticks()
	return clockReading{wall, monotonic, boot}, err
}

// age is how long ago the moment was, with the time that the machine slept.
func (c *clocks) age(m *clockReading) time.Duration {
	wall, monotonic := c.ticks()
	awake := monotonic - m.monotonic
	if slept := wall - m.wall - awake; -clockTolerance < slept && slept < clockTolerance {
		return awake
	}
	boot, err := c.boot()
	if err != nil {
		return unknownAge
	}
	return boot - m.boot
}
