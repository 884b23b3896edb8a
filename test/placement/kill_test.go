// SPDX-License-Identifier: Apache-2.0

//go:build placement

package placement

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/test/lab/process"
	"github.com/patchbay-cni/patchbay/test/placement/bed"
)

// crashingProgram is a program that dies of each of its writes, before it hears of it, and is
// started again: whatever it does it does in lives of one write.
type crashingProgram struct {
	start func() (process.ID, error)

	mu      sync.Mutex
	id      process.ID
	writes  []string // that it died of
	stopped bool
	err     error
}

// onWrite is called for each write.
func (m *crashingProgram) onWrite(r *http.Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stopped || m.err != nil || !m.id.Alive() {
		return // it has died of another write at the same time
	}
	m.writes = append(m.writes, r.Method+" "+r.URL.Path)
	if m.err = m.id.Kill(context.Background()); m.err == nil {
		m.id, m.err = m.start()
	}
}

// run starts the first life; the end of the test ends the last one.
func (m *crashingProgram) run(t *testing.T) {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	var err error
	if m.id, err = m.start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.stopped = true
		t.Logf("it died of %d writes", len(m.writes))
		if t.Failed() {
			t.Logf("the last ones: %q", m.writes[max(0, len(m.writes)-10):])
		}
		if err := m.id.Kill(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

// crashCount tells how many writes there were.
func (m *crashingProgram) crashCount(t *testing.T) int {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil {
		t.Fatal(m.err)
	}
	return len(m.writes)
}

// kcp policy: where an object goes changes atomically, NONE, east, east and west, west,
// NONE, although the hub dies of every write. What is asked for is there in the end, once;
// the watcher sees to the rest.
func TestKCPPolicyHubKilledAtEveryWrite(t *testing.T) {
	w := shared
	ns := w.namespace(t)
	checkInvariants(t, w, ns).allowStaleConditions.Store(true) // the hub has no time to say what is
	if err := w.hub.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.restartHub(t) })
	m := &crashingProgram{}
	gate, err := w.Hub.NewWriteInterceptor(m.onWrite, bed.HubUser, bed.Groups()...)
	if err != nil {
		t.Fatal(err)
	}
	closeInterceptor(t, gate)
	m.start = func() (process.ID, error) { return w.RunHub(gate.Kubeconfig) }
	m.run(t)
	w.roundTrip(t, ns)
	if n := m.crashCount(t); n < 20 {
		t.Errorf("the hub died of %d writes, want some for each step: %q", n, m.writes)
	}
}

// kcp policy: the same while the agent in east dies of each of its writes, at the hub and
// in its cluster.
func TestKCPPolicyAgentKilledAtEveryWrite(t *testing.T) {
	w := shared
	ns := w.namespace(t)
	checkInvariants(t, w, ns).allowStaleConditions.Store(true) // the agent has no time to say what is
	if err := w.agents["east"].Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		var err error
		if w.agents["east"], err = w.StartAgent(context.Background(), "east"); err != nil {
			t.Error(err)
		}
	})
	m := &crashingProgram{}
	local, err := w.Clusters["east"].NewWriteInterceptor(m.onWrite, bed.AgentUser, bed.Groups()...)
	if err != nil {
		t.Fatal(err)
	}
	closeInterceptor(t, local)
	hub, err := w.Hub.NewWriteInterceptor(m.onWrite, v1alpha1.ClusterUserPrefix+"east", v1alpha1.ClusterGroup)
	if err != nil {
		t.Fatal(err)
	}
	closeInterceptor(t, hub)
	m.start = func() (process.ID, error) { return w.RunAgent("east", local.Kubeconfig, hub.Kubeconfig, nil) }
	m.run(t)
	w.roundTrip(t, ns)
	if n := m.crashCount(t); n < 10 {
		t.Errorf("the agent died of %d writes, want some for each step: %q", n, m.writes)
	}
}

// roundTrip takes a Deployment and its ConfigMap NONE, east, east and west, west, NONE. A hub that dies knows nothing
// of what lasts: it needs two heartbeats before each step.
func (w *world) roundTrip(t *testing.T, ns string) {
	t.Helper()
	w.apply(t, w.Hub.Client, ns, `
apiVersion: placement.patchbay.io/v1alpha1
kind: Placement
metadata: {name: fast}
spec: {objects: [{group: apps, kind: Deployment}], clusters: {names: [east]}, move: {stable: 1s}}
`)
	w.apply(t, w.Hub.Client, ns, deployment("web", 2, "", ""))
	for _, step := range []struct {
		clusters string
		want     map[string]int32
	}{
		{"east", map[string]int32{"east": 2}},
		{"east,west", map[string]int32{"east": 1, "west": 1}},
		{"west", map[string]int32{"west": 2}},
		{"", map[string]int32{}},
	} {
		w.annotate(t, object("apps/v1", "Deployment", ns, "web"), step.clusters)
		w.awaitReplicas(t, ns, step.want)
		if step.clusters != "" {
			w.awaitHubAvailable(t, ns, "web", 2)
		}
	}
	eventually(t, "no Work is left", func() error {
		works := &v1alpha1.WorkList{}
		if err := w.Hub.Client.List(t.Context(), works); err != nil {
			return err
		}
		for _, one := range works.Items {
			if one.Spec.Source.Namespace == ns {
				return fmt.Errorf("%s/%s", one.Namespace, one.Name)
			}
		}
		return w.Hub.Client.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "web"}, object("apps/v1", "Deployment", ns, "web"))
	})
}

func closeInterceptor(t *testing.T, g *bed.WriteInterceptor) {
	t.Helper()
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
}
