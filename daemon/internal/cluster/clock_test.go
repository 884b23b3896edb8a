// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"errors"
	"testing"
	"time"
)

// machine is a machine whose clocks a test moves.
type machine struct {
	wall, monotonic, bootTime time.Duration
	// asked counts the system calls; broken makes them fail.
	asked  int
	broken bool
}

// clocks are the machine's.
func (m *machine) clocks() clocks {
	return clocks{
		ticks: func() (wall, monotonic time.Duration) { return m.wall, m.monotonic },
		boot: func() (time.Duration, error) {
			if m.asked++; m.broken {
				return 0, errors.New("no clock")
			}
			return m.bootTime, nil
		},
	}
}

// work lets time pass.
func (m *machine) work(d time.Duration) { m.wall += d; m.monotonic += d; m.bootTime += d }

// sleep suspends the machine.
func (m *machine) sleep(d time.Duration) { m.wall += d; m.bootTime += d }

func TestAgeOfAMoment(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		pass   func(*machine)
		want   time.Duration
		// asks is how many system calls the age may cost.
		asks int
	}{
		"AtOnce":    {reason: "nothing happened", pass: func(*machine) {}},
		"Awake":     {reason: "the monotonic clock is enough", pass: func(m *machine) { m.work(time.Hour) }, want: time.Hour},
		"Suspended": {reason: "it stands still while the machine sleeps", pass: func(m *machine) { m.work(time.Minute); m.sleep(time.Hour) }, want: time.Hour + time.Minute, asks: 1},
		"TimeSet":   {reason: "somebody set the time of day: the moment is no younger for it", pass: func(m *machine) { m.work(time.Minute); m.wall -= time.Hour }, want: time.Minute, asks: 1},
		"TimeSetOn": {reason: "and no older", pass: func(m *machine) { m.work(time.Minute); m.wall += time.Hour }, want: time.Minute, asks: 1},
		"Slewed":    {reason: "a time server's small step", pass: func(m *machine) { m.work(time.Minute); m.wall += time.Millisecond }, want: time.Minute},
		"Broken":    {reason: "what cannot be told is too old", pass: func(m *machine) { m.sleep(time.Hour); m.broken = true }, want: unknownAge, asks: 1},
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
			m.asked = 0
			tc.pass(m)
			if got := c.age(&then); got != tc.want || m.asked != tc.asks {
				t.Errorf("%s: age %s after %d system calls, want %s after %d", tc.reason, got, m.asked, tc.want, tc.asks)
			}
		})
	}
}

// The machine's own clocks go forward, and agree while it is awake.
func TestSystemClocks(t *testing.T) {
	t.Parallel()
	c := systemClocks()
	then, err := c.read()
	if err != nil {
		t.Fatal(err)
	}
	if age := c.age(&then); age < 0 || age > time.Minute {
		t.Errorf("age of a moment just gone is %s", age)
	}
}

func TestUsableWhileTheNodeIsKnownToBeThere(t *testing.T) {
	t.Parallel()
	m := &machine{}
	n := &NodeState{clocks: m.clocks()}
	if n.WarmPoolUsable() {
		t.Error("addresses are usable before the Node was read")
	}
	seen, err := n.clocks.read()
	if err != nil {
		t.Fatal(err)
	}
	n.lastSeen.Store(&seen)
	m.work(nodeFreshFor - time.Second)
	if !n.WarmPoolUsable() {
		t.Error("a cut of less than 10 minutes takes the addresses away")
	}
	m.sleep(2 * time.Second)
	if n.WarmPoolUsable() {
		t.Error("the machine was cut off for 10 minutes, some of them asleep, and hands out addresses")
	}
}

// BenchmarkUsable is what each claim from a hold pays; the aim is 200 ns.
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
