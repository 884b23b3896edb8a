// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/kinds"
)

// wakes is a DelayingQueue.
type wakes []string

func (w *wakes) AddAfter(key kinds.Key, after time.Duration) {
	*w = append(*w, fmt.Sprintf("%s %s", key.Name, after))
}

func (w *wakes) take() string {
	slices.Sort(*w)
	taken := fmt.Sprint(*w)
	*w = nil
	return taken
}

func awaits(replicas int64, clusters ...string) AwaitedRoom {
	return AwaitedRoom{PerReplica: oneCPU, Replicas: replicas, Clusters: clusters}
}

// A report queues the objects that it has room for, and no others.
func TestRoomQueuesThoseThatWait(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason string
		report *v1alpha1.Cluster
		want   string
	}{
		"same":       {"The room is the same.", clusterWith("east", 0, 0), "[]"},
		"less":       {"There is less room.", clusterWith("east", 0), "[]"},
		"divided":    {"One replica may go there.", clusterWith("east", 1), "[both 0s divided 0s]"},
		"whole":      {"All 3 replicas have room.", clusterWith("east", 1, 2), "[both 0s divided 0s whole 0s]"},
		"elsewhere":  {"Only one of them may use west.", clusterWith("west", 9), "[both 0s]"},
		"not at all": {"No object waits for north.", clusterWith("north", 9), "[]"},
		"no report":  {"An agent that reports no room sets no limit.", &v1alpha1.Cluster{ObjectMeta: clusterWith("east").ObjectMeta}, "[both 0s divided 0s whole 0s]"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, queue := NewCapacity(time.Now), &wakes{}
			c.Rooms().SetQueue(queue)
			for _, cluster := range []string{"east", "west"} {
				c.Rooms().Observe(clusterWith(cluster, 0, 0))
			}
			c.Rooms().Observe(clusterWith("full", 5))
			c.AwaitRoom(deployment("divided"), awaits(1, "east"))
			c.AwaitRoom(deployment("whole"), awaits(3, "east"))
			c.AwaitRoom(deployment("both"), awaits(1, "east", "west", "no report"))
			c.AwaitRoom(deployment("limited"), awaits(1, "full")) // by something else than room
			c.AwaitRoom(deployment("gone"), awaits(1, "east"))
			c.AwaitRoom(deployment("gone"), AwaitedRoom{})
			c.Rooms().Observe(tc.report)
			if got := queue.take(); got != tc.want {
				t.Errorf("%s\nqueued %s, want %s", tc.reason, got, tc.want)
			}
		})
	}
}

// Many objects may wait for the room that comes and goes in one cluster: each is decided about once in a while.
func TestRoomQueuesSeldom(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	c, queue := NewCapacity(func() time.Time { return now }), &wakes{}
	c.Rooms().SetQueue(queue)
	comesAndGoes := func() string {
		c.Rooms().Observe(clusterWith("east", 0))
		c.AwaitRoom(deployment("web"), awaits(1, "east")) // decided, still without a place
		now = now.Add(time.Second)
		c.Rooms().Observe(clusterWith("east", 1))
		c.Rooms().Observe(clusterWith("east", 2)) // it is queued already
		return queue.take()
	}
	if first, second := comesAndGoes(), comesAndGoes(); first != "[web 0s]" || second != "[web 9s]" {
		t.Errorf("queued %s and a second later %s, want it at once, and the next time 10 s after the first one", first, second)
	}
	now = now.Add(time.Minute)
	if got := comesAndGoes(); got != "[web 0s]" {
		t.Errorf("a minute later: queued %s, want it at once", got)
	}
}
