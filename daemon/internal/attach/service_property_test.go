// SPDX-License-Identifier: Apache-2.0

package attach_test

import (
	"context"
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// stateMachine is a node on which the events of the property test happen.
type stateMachine struct {
	env *environment
	d   *testDaemon
	// incompleteDels has the sandboxes whose DEL failed or was interrupted. A runtime repeats the DEL.
	incompleteDels map[string]bool
}

// sandbox draws the ID of a sandbox.
func (m *stateMachine) sandbox(t *rapid.T) string {
	return fmt.Sprintf("s%d", rapid.IntRange(0, 3).Draw(t, "sandbox"))
}

// injectFault injects a fault or a kill into one of the next calls.
func (m *stateMachine) injectFault(t *rapid.T) {
	m.d.calls, m.d.faults = nil, nil
	if rapid.Bool().Draw(t, "fault") {
		k := rapid.IntRange(1, 25).Draw(t, "call")
		m.d.faults = map[int]fault{k: {after: rapid.Bool().Draw(t, "after"), kill: rapid.Bool().Draw(t, "kill")}}
	}
}

// restart starts a daemon after a kill.
func (m *stateMachine) restart(t *rapid.T) {
	if !m.d.killed {
		m.d.calls, m.d.faults = nil, nil
		return
	}
	d, err := m.env.start(nil)
	if err != nil {
		t.Fatalf("start: %v", err)
	}
	m.d = d
}

// add sends an ADD.
func (m *stateMachine) add(t *rapid.T) {
	id := m.sandbox(t)
	m.injectFault(t)
	req := request(id)
	if m.env.records[key(id, req.IfName)] == nil {
		m.env.sandbox(id) // a runtime creates one network namespace per sandbox
		delete(m.incompleteDels, id)
	}
	_, err := m.d.Add(context.Background(), req)
	if err == nil && m.d.faults == nil && !m.incompleteDels[id] && len(m.env.namespaces[req.Netns]) != 3 {
		t.Fatalf("ADD succeeded without its interfaces")
	}
	m.restart(t)
}

// del sends a DEL.
func (m *stateMachine) del(t *rapid.T) {
	id := m.sandbox(t)
	m.injectFault(t)
	err := m.d.Del(context.Background(), request(id))
	m.incompleteDels[id] = err != nil || m.d.killed
	if err == nil && len(m.env.namespaces[request(id).Netns]) != 0 {
		t.Fatalf("DEL succeeded and left interfaces")
	}
	m.restart(t)
}

// publish runs the Publisher.
func (m *stateMachine) publish(t *rapid.T) {
	m.injectFault(t)
	m.d.runPublisher()
	m.d.killed = m.d.killed || m.d.faults != nil // the fake Publisher only retries at a start
	m.restart(t)
}

// namespaceGone removes the network namespace of a sandbox before its DEL.
func (m *stateMachine) namespaceGone(t *rapid.T) { m.env.end(m.sandbox(t)) }

// powerCut cuts the power of the node.
func (m *stateMachine) powerCut(t *rapid.T) {
	m.env.powerCut()
	m.d.killed = true
	m.restart(t)
}

// In any sequence of events, no address is on two links and no address in use is free. After the last
// DEL nothing remains.
func TestAnySequence(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		env := newEnvironment()
		d, err := env.start(nil)
		if err != nil {
			t.Fatal(err)
		}
		m := &stateMachine{env: env, d: d, incompleteDels: map[string]bool{}}
		t.Repeat(map[string]func(*rapid.T){
			"add": m.add, "del": m.del, "publish": m.publish, "namespaceGone": m.namespaceGone, "powerCut": m.powerCut,
			"": func(t *rapid.T) {
				if err := env.check(); err != nil {
					t.Fatal(err)
				}
			},
		})
		for i := range 4 {
			if err := m.d.Del(context.Background(), request(fmt.Sprintf("s%d", i))); err != nil {
				t.Fatalf("last DEL: %v", err)
			}
		}
		m.d.runPublisher()
		for _, line := range env.remaining() {
			t.Errorf("remaining: %s", line)
		}
	})
}
