// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"time"

	"golang.org/x/sys/unix"
)

// clocks measures the age of a clockReading, including the time that the machine was
// suspended. Go's monotonic clock stops while the machine is suspended. CLOCK_BOOTTIME does
// not, but reading it is a system call (300 ns), which is too slow for each claim. The wall
// clock needs no system call, and after a suspend the kernel advances both before any
// process runs. Wall and monotonic clock drift apart when the machine was suspended or its
// time was set. Only then does age read CLOCK_BOOTTIME.
type clocks struct {
	// ticks reads the wall clock and the monotonic clock. Each has an epoch of its own.
	ticks func() (wall, monotonic time.Duration)
	// boot reads CLOCK_BOOTTIME.
	boot func() (time.Duration, error)
}

// clockTolerance is the largest drift between wall and monotonic clock that age accepts
// without reading CLOCK_BOOTTIME.
const clockTolerance = 100 * time.Millisecond

// unknownAge is the age when CLOCK_BOOTTIME cannot be read.
const unknownAge = time.Duration(1<<63 - 1)

// systemClocks returns the clocks of the machine.
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
	// CLOCK_BOOTTIME comes first: a suspend between the two calls can then only make the
	// reading older.
	boot, err := c.boot()
	wall, monotonic := c.ticks()
	return clockReading{wall, monotonic, boot}, err
}

// age returns the time since the reading, including suspended time.
func (c *clocks) age(r *clockReading) time.Duration {
	wall, monotonic := c.ticks()
	awake := monotonic - r.monotonic
	if slept := wall - r.wall - awake; -clockTolerance < slept && slept < clockTolerance {
		return awake
	}
	boot, err := c.boot()
	if err != nil {
		return unknownAge
	}
	return boot - r.boot
}
