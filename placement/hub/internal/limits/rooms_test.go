// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"pgregory.net/rapid"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/kinds"
	"github.com/patchbay-cni/patchbay/placement/internal/room"
)

// oneCPU is the usage of a replica that requests 1 CPU.
var oneCPU = Usage{Replicas: 1, MilliCPU: 1000}

func deployment(name string) kinds.Key {
	return kinds.Key{GroupKind: schema.GroupKind{Group: "apps", Kind: "Deployment"}, Namespace: "shop", Name: name}
}

// eastWith is the Cluster east, which reports nodes with so many free CPUs each.
func clusterWith(name string, cpus ...int64) *v1alpha1.Cluster {
	var nodes []room.Free
	for _, n := range cpus {
		nodes = append(nodes, room.Free{MilliCPU: 1000 * n, Memory: 1 << 40, Pods: 110})
	}
	c := &v1alpha1.Cluster{}
	c.Name, c.Status.Room = name, room.New(nodes).ToAPI()
	return c
}

// grow lets an object have as many replicas in east as it wants and there is room for, and returns their number.
func grow(t interface{ Fatal(...any) }, c *Capacity, key kinds.Key, has, wants int64) (got int64) {
	err := c.Reserve(key, func(roomOf RoomFunc) (Reservation, error) {
		got = wants
		if n, _ := roomOf(oneCPU, "east", has, nil); n != nil {
			got = min(got, *n)
		}
		return Reservation{PerReplica: oneCPU, Replicas: map[string]int64{"east": got}}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// Objects get no more than the room, whenever their Pods come, and whenever the cluster reports them and its room.
// They keep what they have. The reports of one agent come in their order.
func TestObjectsNeverShareRoom(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		now := time.Unix(1_000_000, 0)
		c := NewCapacity(func() time.Time { return now })
		nodes := rapid.SliceOfN(rapid.Int64Range(0, 8), 1, 4).Draw(t, "nodes")
		total := int64(0)
		for _, n := range nodes {
			total += n
		}
		reserved, exist := map[kinds.Key]int64{}, map[kinds.Key]int64{}
		report := func() {
			used, free := int64(0), []int64(nil)
			for _, n := range exist {
				used += n
			}
			for _, n := range nodes {
				here := min(n, used)
				used, free = used-here, append(free, n-here)
			}
			c.Rooms().Observe(clusterWith("east", free...))
		}
		report()
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			key := deployment(rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "object"))
			switch rapid.IntRange(0, 4).Draw(t, "event") {
			case 0:
				wants := rapid.Int64Range(0, 12).Draw(t, "wants")
				got := grow(t, c, key, reserved[key], wants)
				if got < min(wants, reserved[key]) {
					t.Fatalf("%v gets %d replicas of %d, and had %d", key, got, wants, reserved[key])
				}
				if reserved[key] = got; exist[key] > got { // the cluster removes Pods before it reports its room
					exist[key] = got
				}
			case 1: // Pods come
				exist[key] = rapid.Int64Range(exist[key], max(exist[key], reserved[key])).Draw(t, "exist")
			case 2: // the object's Work reports them
				c.Set(key, Reservation{PerReplica: oneCPU, Replicas: map[string]int64{"east": reserved[key]}, Existing: map[string]int64{"east": exist[key]}})
			case 3:
				report()
			case 4: // a while later, all Pods exist and are reported
				for key, n := range reserved {
					exist[key] = n
					c.Set(key, Reservation{PerReplica: oneCPU, Replicas: map[string]int64{"east": reserved[key]}, Existing: map[string]int64{"east": n}})
				}
				report()
				now = now.Add(rapid.SampledFrom([]time.Duration{time.Second, roomReportDelay, 2 * time.Minute}).Draw(t, "time"))
			}
			sum := int64(0)
			for _, n := range reserved {
				sum += n
			}
			if sum > total {
				t.Fatalf("%v have room for %d, and %v is requested", nodes, total, reserved)
			}
		}
	})
}

func TestRoomComesBack(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason string
		before func(c *Capacity, advance func(time.Duration))
		want   int64
	}{
		"at once": {"A second object does not get what a first one has just got.", func(*Capacity, func(time.Duration)) {}, 4},
		"reported": {
			"Replicas that exist are in the next report of the room.",
			func(c *Capacity, _ func(time.Duration)) {
				c.Set(deployment("first"), Reservation{PerReplica: oneCPU, Replicas: map[string]int64{"east": 6}, Existing: map[string]int64{"east": 6}})
				c.Rooms().Observe(clusterWith("east", 5)) // another client has stopped a Pod
			}, 5,
		},
		"unchanged": {
			"An agent reports small changes within a minute: what exists for longer is in its last report.",
			func(c *Capacity, advance func(time.Duration)) {
				c.Rooms().Observe(clusterWith("east", 4)) // before the Work's report
				c.Set(deployment("first"), Reservation{PerReplica: oneCPU, Replicas: map[string]int64{"east": 6}, Existing: map[string]int64{"east": 6}})
				advance(roomReportDelay)
			}, 4,
		},
		"refused": {"Replicas that do not come take no room for ever.", func(_ *Capacity, advance func(time.Duration)) { advance(assumeAtMost) }, 10},
		"refused in part": {
			"That some come does not lengthen it for the others.",
			func(c *Capacity, advance func(time.Duration)) {
				advance(2 * time.Minute)
				c.Set(deployment("first"), Reservation{PerReplica: oneCPU, Replicas: map[string]int64{"east": 6}, Existing: map[string]int64{"east": 2}})
				c.Rooms().Observe(clusterWith("east", 8))
				advance(assumeAtMost - 2*time.Minute)
			}, 8,
		},
		"come late": {
			"Those that have just come are not in a report of the room yet.",
			func(c *Capacity, advance func(time.Duration)) {
				advance(assumeAtMost - time.Second)
				c.Set(deployment("first"), Reservation{PerReplica: oneCPU, Replicas: map[string]int64{"east": 6}, Existing: map[string]int64{"east": 6}})
				advance(time.Second)
			}, 4,
		},
		"refused, and one restarts": {
			"Of those that ended only the one that comes again takes room.",
			func(c *Capacity, advance func(time.Duration)) {
				for _, n := range []int64{2, 1} {
					c.Set(deployment("first"), Reservation{PerReplica: oneCPU, Replicas: map[string]int64{"east": 6}, Existing: map[string]int64{"east": n}})
					c.Rooms().Observe(clusterWith("east", 10-n))
					if n == 2 {
						advance(assumeAtMost)
						grow(t, c, deployment("second"), 0, 1) // reads the room
						c.Set(deployment("second"), Reservation{})
					}
				}
			}, 8,
		},
		"removed": {"An object that leaves frees its room.", func(c *Capacity, _ func(time.Duration)) { c.Set(deployment("first"), Reservation{}) }, 10},
		"restarted": {"Pods that restart come again.", func(c *Capacity, _ func(time.Duration)) {
			for _, n := range []int64{6, 0} {
				c.Set(deployment("first"), Reservation{PerReplica: oneCPU, Replicas: map[string]int64{"east": 6}, Existing: map[string]int64{"east": n}})
				c.Rooms().Observe(clusterWith("east", 10 - n))
			}
		}, 4},
		"new leader": {"The room that a new leader reads is without the Pods that exist.", func(c *Capacity, _ func(time.Duration)) {
			c.Set(deployment("first"), Reservation{})
			c.Restore(deployment("first"), Reservation{PerReplica: oneCPU, Replicas: map[string]int64{"east": 6}, Existing: map[string]int64{"east": 5}})
		}, 9},
		"no report": {"An agent of an earlier version reports no room, and sets no limit.", func(c *Capacity, _ func(time.Duration)) {
			c.Rooms().Observe(&v1alpha1.Cluster{ObjectMeta: clusterWith("east").ObjectMeta})
		}, 100},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			now := time.Unix(1_000_000, 0)
			c := NewCapacity(func() time.Time { return now })
			c.Rooms().Observe(clusterWith("east", 10))
			if got := grow(t, c, deployment("first"), 0, 6); got != 6 {
				t.Fatalf("the first object gets %d replicas, want 6", got)
			}
			tc.before(c, func(d time.Duration) { now = now.Add(d) })
			if got := grow(t, c, deployment("second"), 0, 100); got != tc.want {
				t.Errorf("%s\nthe second object gets %d replicas, want %d", tc.reason, got, tc.want)
			}
		})
	}
}

// A cluster with many objects counts only those of which it lacks replicas: a change of one does not count all.
func TestRoomCountsDifferences(t *testing.T) {
	t.Parallel()
	const objects = 1000
	now := time.Unix(1_000_000, 0)
	c := NewCapacity(func() time.Time { return now })
	set := func(i int, replicas, existing int64) {
		c.Set(deployment(fmt.Sprint(i)), Reservation{PerReplica: oneCPU, Replicas: map[string]int64{"east": replicas}, Existing: map[string]int64{"east": existing}})
	}
	for i := range objects {
		set(i, 2, 2)
	}
	east := c.Rooms().clusters["east"]
	expect := func(when string, open int, assumed int64) {
		t.Helper()
		if got := east.assumed[requestsOf(oneCPU)]; len(east.open) != open || got != assumed {
			t.Errorf("%s: %d replicas of %d objects are assumed, want %d of %d", when, got, len(east.open), assumed, open)
		}
	}
	expect("before a report", objects, 2*objects)
	c.Rooms().Observe(clusterWith("east", 10))
	expect("after a report", 0, 0)
	for i := range 3 {
		set(i, 2, int64(i)) // a rollout begins
	}
	expect("restarts", 2, 3)
	set(0, 5, 2)
	expect("grows", 2, 6)
	set(0, 0, 2)
	expect("leaves", 1, 1)
	grow(t, c, deployment("0"), 0, 1) // walks the open ones
	walked := east.expires
	now = now.Add(time.Second)
	set(5, 2, 1)
	grow(t, c, deployment("0"), 1, 2)
	if walked != east.expires {
		t.Errorf("a decision counts all assumptions, although the next one ends at %s", east.expires)
	}
}

func TestJobsAwaitNoRoom(t *testing.T) {
	t.Parallel()
	c := NewCapacity(time.Now)
	c.Rooms().Observe(clusterWith("east", 2))
	job := kinds.Key{GroupKind: schema.GroupKind{Group: "batch", Kind: "Job"}, Namespace: "shop", Name: "import"}
	if got := grow(t, c, job, 0, 1000); got != 1000 {
		t.Errorf("the completions of a Job do not run at a time: got room for %d, want 1000", got)
	}
	if got := grow(t, c, deployment("web"), 0, 2); got != 2 {
		t.Errorf("got room for %d beside a Job, want 2", got)
	}
}
