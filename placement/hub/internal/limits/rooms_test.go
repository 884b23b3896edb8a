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
func eastWith(cpus ...int64) *v1alpha1.Cluster {
	var nodes []room.Free
	for _, n := range cpus {
		nodes = append(nodes, room.Free{MilliCPU: 1000 * n, Memory: 1 << 40, Pods: 110})
	}
	c := &v1alpha1.Cluster{}
	c.Name, c.Status.Room = "east", room.New(nodes).ToAPI()
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
			c.Rooms().Observe(eastWith(free...))
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
				c.Rooms().Observe(eastWith(5)) // another client has stopped a Pod
			}, 5,
		},
		"unchanged": {
			"An agent reports small changes within a minute: what exists for longer is in its last report.",
			func(c *Capacity, advance func(time.Duration)) {
				c.Rooms().Observe(eastWith(4)) // before the Work's report
				c.Set(deployment("first"), Reservation{PerReplica: oneCPU, Replicas: map[string]int64{"east": 6}, Existing: map[string]int64{"east": 6}})
				advance(roomReportDelay)
			}, 4,
		},
		"refused": {"Replicas that do not come take no room for ever.", func(_ *Capacity, advance func(time.Duration)) { advance(assumeAtMost) }, 10},
		"removed": {"An object that leaves frees its room.", func(c *Capacity, _ func(time.Duration)) { c.Set(deployment("first"), Reservation{}) }, 10},
		"restarted": {"Pods that restart come again.", func(c *Capacity, _ func(time.Duration)) {
			for _, n := range []int64{6, 0} {
				c.Set(deployment("first"), Reservation{PerReplica: oneCPU, Replicas: map[string]int64{"east": 6}, Existing: map[string]int64{"east": n}})
				c.Rooms().Observe(eastWith(10 - n))
			}
		}, 4},
		"new leader": {"The room that a new leader reads is without the Pods that exist.", func(c *Capacity, _ func(time.Duration)) {
			c.Set(deployment("first"), Reservation{})
			c.Restore(deployment("first"), Reservation{PerReplica: oneCPU, Replicas: map[string]int64{"east": 6}, Existing: map[string]int64{"east": 5}})
		}, 9},
		"no report": {"An agent of an earlier version reports no room, and sets no limit.", func(c *Capacity, _ func(time.Duration)) {
			c.Rooms().Observe(&v1alpha1.Cluster{ObjectMeta: eastWith().ObjectMeta})
		}, 100},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			now := time.Unix(1_000_000, 0)
			c := NewCapacity(func() time.Time { return now })
			c.Rooms().Observe(eastWith(10))
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

func TestJobsAwaitNoRoom(t *testing.T) {
	t.Parallel()
	c := NewCapacity(time.Now)
	c.Rooms().Observe(eastWith(2))
	job := kinds.Key{GroupKind: schema.GroupKind{Group: "batch", Kind: "Job"}, Namespace: "shop", Name: "import"}
	if got := grow(t, c, job, 0, 1000); got != 1000 {
		t.Errorf("the completions of a Job do not run at a time: got room for %d, want 1000", got)
	}
	if got := grow(t, c, deployment("web"), 0, 2); got != 2 {
		t.Errorf("got room for %d beside a Job, want 2", got)
	}
}

// wakes is a Queue.
type wakes []string

func (w *wakes) Add(key kinds.Key) { *w = append(*w, key.Name) }

func TestRoomQueuesThoseThatWait(t *testing.T) {
	t.Parallel()
	c, queue := NewCapacity(time.Now), &wakes{}
	c.Rooms().SetQueue(queue)
	c.Rooms().Observe(eastWith(2))
	c.AwaitRoom(deployment("waits"), true)
	c.AwaitRoom(deployment("gone"), true)
	c.AwaitRoom(deployment("gone"), false)
	c.Rooms().Observe(eastWith(2))
	if len(*queue) > 0 {
		t.Fatalf("queued %v although the room is the same", *queue)
	}
	c.Rooms().Observe(eastWith(3))
	if got := fmt.Sprint(*queue); got != "[waits]" {
		t.Errorf("queued %s, want the object that waits", got)
	}
}
