// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/patchbay-cni/patchbay/placement/hub/internal/kinds"
)

// roomModel has clusters of one node each, and what runs there. A replica requests 1 CPU.
type roomModel struct {
	now      time.Time
	capacity *Capacity
	nodes    map[string]int64 // their CPUs
	// requested by the hub, existing, and existing by the last report of the object, by cluster.
	requested, exist, read map[kinds.Key]map[string]int64
	// room is what a cluster reported last, and news since when it is different.
	room map[string]int64
	news map[string]time.Time
}

func newRoomModel(nodes map[string]int64, objects []kinds.Key) *roomModel {
	m := &roomModel{
		now: time.Unix(1_000_000, 0), nodes: nodes, room: map[string]int64{}, news: map[string]time.Time{},
		requested: map[kinds.Key]map[string]int64{}, exist: map[kinds.Key]map[string]int64{}, read: map[kinds.Key]map[string]int64{},
	}
	for _, key := range objects {
		m.requested[key], m.exist[key], m.read[key] = map[string]int64{}, map[string]int64{}, map[string]int64{}
	}
	m.restart()
	return m
}

// restart makes a Capacity of what is stored, as a new leader does. All reports have arrived then.
func (m *roomModel) restart() {
	m.capacity = NewCapacity(func() time.Time { return m.now })
	for key, requested := range m.requested {
		m.readAll(key)
		m.capacity.Restore(key, Reservation{PerReplica: oneCPU, Replicas: nonZero(requested), Existing: maps.Clone(m.read[key])})
	}
	for name := range m.nodes {
		m.report(name)
		m.capacity.Rooms().Observe(clusterWith(name, m.room[name]))
	}
}

// used returns how many replicas run in a cluster.
func (m *roomModel) used(cluster string) (n int64) {
	for _, exist := range m.exist {
		n += exist[cluster]
	}
	return n
}

// report reports the room of a cluster. Replicas that went are in a report of their object before.
func (m *roomModel) report(cluster string) {
	for key, exist := range m.exist {
		if exist[cluster] < m.read[key][cluster] {
			m.readOne(key, cluster)
		}
	}
	m.room[cluster] = m.nodes[cluster] - m.used(cluster)
	delete(m.news, cluster)
	m.capacity.Rooms().Observe(clusterWith(cluster, m.room[cluster]))
}

func (m *roomModel) readAll(key kinds.Key) {
	for name := range m.nodes {
		m.readOne(key, name)
	}
}

// readOne reads the report of an object in a cluster.
func (m *roomModel) readOne(key kinds.Key, cluster string) {
	m.read[key][cluster] = m.exist[key][cluster]
	m.capacity.Set(key, Reservation{PerReplica: oneCPU, Replicas: nonZero(m.requested[key]), Existing: maps.Clone(m.read[key])})
}

// run sets how many replicas run.
func (m *roomModel) run(key kinds.Key, cluster string, n int64) {
	m.exist[key][cluster] = n
	if _, ok := m.news[cluster]; !ok && m.nodes[cluster]-m.used(cluster) != m.room[cluster] {
		m.news[cluster] = m.now
	}
}

// wait lets time pass. Agents report small changes once a minute.
func (m *roomModel) wait(d time.Duration) {
	for end := m.now.Add(d); m.now.Before(end); {
		m.now = m.now.Add(min(5*time.Second, end.Sub(m.now)))
		for cluster, since := range m.news {
			if m.now.Sub(since) >= time.Minute {
				m.report(cluster)
			}
		}
	}
}

// place requests up to so many replicas of an object in each cluster, in one decision.
func (m *roomModel) place(t *rapid.T, key kinds.Key, wants map[string]int64) {
	next := map[string]int64{}
	err := m.capacity.Reserve(key, func(roomOf RoomFunc) (Reservation, error) {
		for name, n := range wants {
			if room, _ := roomOf(oneCPU, name, m.requested[key][name], nil); room != nil {
				n = min(n, *room)
			}
			if has := m.requested[key][name]; n < min(wants[name], has) {
				t.Fatalf("%s gets %d replicas in %s, and had %d", key.Name, n, name, has)
			}
			next[name] = n
		}
		return Reservation{PerReplica: oneCPU, Replicas: nonZero(next)}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	m.requested[key] = next
	for name, n := range next {
		if m.exist[key][name] > n { // the cluster removes them
			m.run(key, name, n)
		}
	}
}

// check fails if a cluster is requested to run more than its nodes, and what the hub counts differs from a count of all.
func (m *roomModel) check(t *rapid.T) {
	for name, node := range m.nodes {
		requested, missing := int64(0), int64(0)
		for key, by := range m.requested {
			requested += by[name]
			missing += by[name] - m.exist[key][name]
		}
		if free := node - m.used(name); missing > free {
			t.Fatalf("%s has room for %d more replicas, and %d of %d do not run yet", name, free, missing, requested)
		}
		if c := m.capacity.Rooms().clusters[name]; c != nil {
			assumed := int64(0)
			for _, a := range c.objects {
				assumed += a.reserved - a.contained
			}
			if got := c.assumed[requestsOf(oneCPU)]; got != assumed {
				t.Fatalf("%s: %d replicas are assumed, want %d", name, got, assumed)
			}
		}
	}
}

// Whatever the order of decisions, reports and restarts, no cluster is to run more than it has room for: what was granted
// beyond what runs never exceeds what is free. Replicas that a cluster refuses for minutes are another test's.
func TestClustersNeverGetMoreThanTheirRoom(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		clusters, objects := []string{"east", "north", "west"}, []kinds.Key(nil)
		nodes := map[string]int64{}
		for _, name := range clusters {
			nodes[name] = rapid.Int64Range(0, 20).Draw(t, name)
		}
		for i := range rapid.IntRange(2, 8).Draw(t, "objects") {
			objects = append(objects, deployment(fmt.Sprint(i)))
		}
		m := newRoomModel(nodes, objects)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			key, name := rapid.SampledFrom(objects).Draw(t, "object"), rapid.SampledFrom(clusters).Draw(t, "cluster")
			exist, requested := m.exist[key][name], m.requested[key][name]
			switch rapid.IntRange(0, 6).Draw(t, "event") {
			case 0:
				wants := map[string]int64{}
				for _, name := range clusters {
					wants[name] = rapid.Int64Range(0, 12).Draw(t, "wants "+name)
				}
				m.place(t, key, wants)
			case 1:
				m.run(key, name, rapid.Int64Range(exist, max(exist, requested)).Draw(t, "come"))
			case 2:
				m.run(key, name, rapid.Int64Range(0, exist).Draw(t, "restart"))
			case 3:
				m.readOne(key, name)
			case 4:
				m.report(name)
			case 5:
				m.wait(rapid.SampledFrom([]time.Duration{time.Second, 20 * time.Second, roomReportDelay}).Draw(t, "time"))
				for key, requested := range m.requested { // all come before the hub gives them up
					for name, n := range requested {
						m.run(key, name, n)
					}
				}
			case 6:
				m.restart()
			}
			m.check(t)
		}
	})
}

func nonZero(replicas map[string]int64) map[string]int64 {
	kept := map[string]int64{}
	for name, n := range replicas {
		if n > 0 {
			kept[name] = n
		}
	}
	return kept
}
