// SPDX-License-Identifier: Apache-2.0

package attach_test

import (
	"context"
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// machine is a node in which anything may happen at any time.
type machine struct {
	w *world
	l *life
	// torn are sandboxes whose DEL failed or was cut off: a runtime goes on with DEL.
	torn map[string]bool
}

func (m *machine) sandbox(t *rapid.T) string {
	return fmt.Sprintf("s%d", rapid.IntRange(0, 3).Draw(t, "sandbox"))
}

// trouble is armed before a request: a fault, or the daemon's end, some calls on.
func (m *machine) trouble(t *rapid.T) {
	m.l.calls, m.l.faults = nil, nil
	if rapid.Bool().Draw(t, "trouble") {
		k := rapid.IntRange(1, 25).Draw(t, "call")
		m.l.faults = map[int]fault{k: {after: rapid.Bool().Draw(t, "after"), kill: rapid.Bool().Draw(t, "kill")}}
	}
}

// recover starts a daemon when there is none.
func (m *machine) recover(t *rapid.T) {
	if !m.l.dead {
		m.l.calls, m.l.faults = nil, nil
		return
	}
	l, err := m.w.start(nil)
	if err != nil {
		t.Fatalf("start: %v", err)
	}
	m.l = l
}

func (m *machine) add(t *rapid.T) {
	id := m.sandbox(t)
	m.trouble(t)
	req := request(id)
	if m.w.records[key(id, req.IfName)] == nil {
		m.w.sandbox(id) // a runtime makes no second namespace for a sandbox
		delete(m.torn, id)
	}
	_, err := m.l.Add(context.Background(), req)
	if err == nil && m.l.faults == nil && !m.torn[id] && len(m.w.namespaces[req.Netns]) != 3 {
		t.Fatalf("ADD answered without its interfaces")
	}
	m.recover(t)
}

func (m *machine) del(t *rapid.T) {
	id := m.sandbox(t)
	m.trouble(t)
	err := m.l.Del(context.Background(), request(id))
	m.torn[id] = err != nil || m.l.dead
	if err == nil && len(m.w.namespaces[request(id).Netns]) != 0 {
		t.Fatalf("DEL answered and left interfaces")
	}
	m.recover(t)
}

func (m *machine) publish(t *rapid.T) {
	m.trouble(t)
	m.l.drain()
	m.l.dead = m.l.dead || m.l.faults != nil // the model retries at its start only
	m.recover(t)
}

// namespaceGone is a sandbox whose namespace goes before its DEL.
func (m *machine) namespaceGone(t *rapid.T) { m.w.end(m.sandbox(t)) }

func (m *machine) powerCut(t *rapid.T) {
	m.w.powerCut()
	m.l.dead = true
	m.recover(t)
}

// Whatever happens, no address is on two links and none that is used is free;
// after the last DEL nothing is left.
func TestAnySequence(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld()
		l, err := w.start(nil)
		if err != nil {
			t.Fatal(err)
		}
		m := &machine{w: w, l: l, torn: map[string]bool{}}
		t.Repeat(map[string]func(*rapid.T){
			"add": m.add, "del": m.del, "publish": m.publish, "namespaceGone": m.namespaceGone, "powerCut": m.powerCut,
			"": func(t *rapid.T) {
				if err := w.check(); err != nil {
					t.Fatal(err)
				}
			},
		})
		for i := range 4 {
			if err := m.l.Del(context.Background(), request(fmt.Sprintf("s%d", i))); err != nil {
				t.Fatalf("last DEL: %v", err)
			}
		}
		m.l.drain()
		for _, line := range w.left() {
			t.Errorf("left: %s", line)
		}
	})
}
