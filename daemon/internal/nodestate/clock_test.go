// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"errors"
	"testing"
	"time"
)

// machine is a machine whose clocks the test sets.
type machine struct {
	wall, monotonic, bootTime time.Duration
	// systemCalls counts the reads of CLOCK_BOOTTIME; broken makes them fail.
	systemCalls int
	broken      bool
}

// clocks returns the machine's clocks.
func (m *machine) clocks() clocks {
	return clocks{
		ticks: func() (wall, monotonic time.Duration) { return m.wall, m.monotonic },
		boot: func() (time.Duration, error) {
			if m.systemCalls++; m.broken {
				return 0, errors.New("no clock")
			}
			return m.bootTime, nil
		},
	}
}

// run lets time pass while the machine is awake.
func (m *machine) run(d time.Duration) { m.wall += d; m.monotonic += d; m.bootTime += d }

// suspend lets time pass while the machine is suspended.
func (m *machine) suspend(d time.Duration) { m.wall += d; m.bootTime += d }

func TestAgeOfAMoment(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason  string
		advance func(*machine)
		want    time.Duration
		// systemCalls is how many system calls the age may cost.
		systemCalls int
	}{
		"AtOnce":    {reason: "No time passed.", advance: func(*machine) {}},
		"Awake":     {reason: "The monotonic clock is enough while the machine is awake.", advance: func(m *machine) { m.run(time.Hour) }, want: time.Hour},
		"Suspended": {reason: "The monotonic clock stops while the machine is suspended.", advance: func(m *machine) { m.run(time.Minute); m.suspend(time.Hour) }, want: time.Hour + time.Minute, systemCalls: 1},
		"SetBack":   {reason: "Setting the wall clock back does not make the reading younger.", advance: func(m *machine) { m.run(time.Minute); m.wall -= time.Hour }, want: time.Minute, systemCalls: 1},
		"SetAhead":  {reason: "Setting the wall clock ahead does not make the reading older.", advance: func(m *machine) { m.run(time.Minute); m.wall += time.Hour }, want: time.Minute, systemCalls: 1},
		"Slewed":    {reason: "A time server slews the wall clock by less than the tolerance.", advance: func(m *machine) { m.run(time.Minute); m.wall += time.Millisecond }, want: time.Minute},
		"Broken":    {reason: "An age that cannot be read counts as too old.", advance: func(m *machine) { m.suspend(time.Hour); m.broken = true }, want: unknownAge, systemCalls: 1},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := &machine{wall: 1000 * time.Hour, monotonic: time.Hour, bootTime: 2 * time.Hour}
			c := m.clocks()
			then, err := c.read()
			if err != nil {
				t.Fatal(err)
			}
			m.systemCalls = 0
			tc.advance(m)
			if got := c.age(&then); got != tc.want || m.systemCalls != tc.systemCalls {
				t.Errorf("%s: age %s after %d system calls, want %s after %d", tc.reason, got, m.systemCalls, tc.want, tc.systemCalls)
			}
		})
	}
}

// The clocks of the system advance, and agree while the machine is awake.
func TestSystemClocks(t *testing.T) {
	t.Parallel()
	c := systemClocks()
	then, err := c.read()
	if err != nil {
		t.Fatal(err)
	}
	if age := c.age(&then); age < 0 || age > time.Minute {
		t.Errorf("age of a reading just taken: got %s", age)
	}
}

// The warm pool is usable for 10 minutes after a read found the Node, including suspended time.
func TestUsableWhileTheNodeIsKnownToBeThere(t *testing.T) {
	t.Parallel()
	m := &machine{}
	n := &NodeState{clocks: m.clocks()}
	if n.WarmPoolUsable() {
		t.Error("got usable before a read found the Node, want not usable")
	}
	seen, err := n.clocks.read()
	if err != nil {
		t.Fatal(err)
	}
	n.lastSeen.Store(&seen)
	m.run(nodeFreshFor - time.Second)
	if !n.WarmPoolUsable() {
		t.Error("got not usable after less than 10 minutes, want usable")
	}
	m.suspend(2 * time.Second)
	if n.WarmPoolUsable() {
		t.Error("got usable after 10 minutes, some of them suspended, want not usable")
	}
}

// BenchmarkUsable measures what each claim from the warm pool pays. The target is 200 ns.
func BenchmarkUsable(b *testing.B) {
	n := &NodeState{clocks: systemClocks()}
	seen, err := n.clocks.read()
	if err != nil {
		b.Fatal(err)
	}
	n.lastSeen.Store(&seen)
	b.ReportAllocs()
	for b.Loop() {
		if !n.WarmPoolUsable() {
			b.Fatal("not usable")
		}
	}
}
