// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/kinds"
	"github.com/patchbay-cni/patchbay/placement/internal/drain"
)

// queued are the objects that a Drains has queued.
type queued []string

func (q *queued) Add(k kinds.Key) { *q = append(*q, k.Name) }

func draining(maxMoves int32) *v1alpha1.Cluster {
	return &v1alpha1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Name: "east"},
		Spec:       v1alpha1.ClusterSpec{Drain: &v1alpha1.Drain{Mode: v1alpha1.DrainMove, MaxConcurrentMoves: maxMoves}},
	}
}

func keyOf(name string) kinds.Key { return kinds.Key{Namespace: "shop", Name: name} }

var (
	present = v1alpha1.Target{Cluster: "east", State: v1alpha1.TargetActive, Replicas: new(int32(2)), RequestedReplicas: new(int32(2))}
	leaving = v1alpha1.Target{Cluster: "east", State: v1alpha1.TargetDraining, Replicas: new(int32(0)), RequestedReplicas: new(int32(2))}
	losing  = v1alpha1.Target{Cluster: "east", State: v1alpha1.TargetActive, Replicas: new(int32(1)), RequestedReplicas: new(int32(2))}
)

func assignment(name string, t v1alpha1.Target) v1alpha1.Assignment {
	return v1alpha1.Assignment{Spec: v1alpha1.AssignmentSpec{
		Object: v1alpha1.ObjectReference{Namespace: "shop", Name: name}, Targets: []v1alpha1.Target{t},
	}}
}

// A new leader counts what moves by the stored Assignments, also where a target loses only some of its replicas.
func TestNewLeaderCountsStoredMoves(t *testing.T) {
	t.Parallel()
	now, c := time.Unix(10_000, 0), draining(2)
	d, q := NewDrains(), &queued{}
	d.SetQueue(q)
	if may, isNew := d.MayLeave(c, keyOf("c"), 0, present, now); may || !isNew {
		t.Errorf("before the objects are listed: may leave %t, is new %t", may, isNew)
	}
	stored := []v1alpha1.Assignment{assignment("a", leaving), assignment("b", losing), assignment("c", present)}
	d.Check(c, stored, now)
	if len(*q) > 0 || d.Start(c, keyOf("c"), false, now) {
		t.Errorf("2 objects leave, and %v may begin", *q)
	}
	d.Update(keyOf("b"), []v1alpha1.Target{losing}, now) // no change
	if len(*q) > 0 {
		t.Errorf("2 objects leave, and %v may begin", *q)
	}
	d.Update(keyOf("a"), nil, now)
	if !slices.Equal(*q, queued{"c"}) {
		t.Errorf("one has left: got %v, want c to begin", *q)
	}
}

// An object takes its slot back to the others when it finds no place, and keeps it while it still loses replicas.
func TestStayingObjectGivesItsSlotBack(t *testing.T) {
	t.Parallel()
	now, c := time.Unix(10_000, 0), draining(1)
	d, q := NewDrains(), &queued{}
	d.SetQueue(q)
	stored := []v1alpha1.Assignment{assignment("a", present), assignment("b", present)}
	d.Check(c, stored, now)
	d.MayLeave(c, keyOf("a"), 0, present, now)
	d.MayLeave(c, keyOf("b"), 0, present, now)
	if !slices.Equal(*q, queued{"a"}) {
		t.Fatalf("got %v, want a to begin", *q)
	}
	d.Stays(c, keyOf("a"), NoPlace, losing, now)
	if len(*q) > 1 {
		t.Fatalf("a still loses replicas, and %v begins", *q)
	}
	d.Update(keyOf("a"), []v1alpha1.Target{present}, now)
	if !slices.Equal(*q, queued{"a", "b"}) || d.StayOf("east", keyOf("a")) != NoPlace {
		t.Fatalf("got %v, want b to begin", *q)
	}
	if may, _ := d.MayLeave(c, keyOf("a"), 0, present, now); !may {
		t.Error("a may not look for a place when it changes")
	}
	if d.Start(c, keyOf("a"), false, now) {
		t.Error("a has found a place, and begins while b moves")
	}
	if !d.Start(c, keyOf("a"), true, now) {
		t.Error("a user has ordered a to leave, and it waits")
	}
	if d.End("east"); d.IsActive("east") || d.StayOf("east", keyOf("a")) != NotStaying {
		t.Error("the drain has ended, and is remembered")
	}
}

// An object without a policy has no priority. The others do not wait for it, though the hub decides about it before it
// has listed the objects of the cluster.
func TestObjectThatStaysHoldsUpNothing(t *testing.T) {
	t.Parallel()
	now, c := time.Unix(10_000, 0), draining(1)
	d, q := NewDrains(), &queued{}
	d.SetQueue(q)
	d.Stays(c, keyOf("a"), AwaitsUser, present, now)
	d.MayLeave(c, keyOf("b"), 0, present, now)
	d.Check(c, []v1alpha1.Assignment{assignment("a", present), assignment("b", present)}, now)
	if !slices.Equal(*q, queued{"b"}) {
		t.Errorf("got %v, want b to begin at once", *q)
	}
}

// While the hub does not know the priorities of all objects, none begins; an object that cannot be read holds up the
// others for a while only. One that does not begin for a minute gives its slot back.
func TestUnknownPriorities(t *testing.T) {
	t.Parallel()
	now, c := time.Unix(10_000, 0), draining(1)
	d, q := NewDrains(), &queued{}
	d.SetQueue(q)
	stored := []v1alpha1.Assignment{assignment("a", present), assignment("b", present), assignment("c", present)}
	d.Check(c, stored, now)
	d.MayLeave(c, keyOf("b"), 0, present, now)
	d.MayLeave(c, keyOf("c"), 7, present, now)
	if d.Check(c, stored, now.Add(awaitPriorities-time.Second)); len(*q) > 0 {
		t.Errorf("%v begins before the priority of a is known", *q)
	}
	now = now.Add(awaitPriorities)
	if d.Check(c, stored, now); !slices.Equal(*q, queued{"c"}) {
		t.Errorf("got %v, want c to begin", *q)
	}
	if d.Check(c, stored, now.Add(drain.BlockedLimit)); !slices.Equal(*q, queued{"c", "b"}) {
		t.Errorf("got %v, want b to begin after c has not begun", *q)
	}
}

// A drain empties the cluster within its limit, by the stored targets, whatever the order of events, and though the
// cache and the leader change.
func TestDrainEmptiesTheCluster(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		now, most := time.Unix(10_000, 0), rapid.Int32Range(1, 3).Draw(t, "max")
		c, targets := draining(most), map[string]v1alpha1.Target{}
		for i := range rapid.IntRange(1, 10).Draw(t, "objects") {
			targets[fmt.Sprintf("o%d", i)] = present
		}
		d := NewDrains()
		leave := func(name string) { // its move does not turn round
			may, _ := d.MayLeave(c, keyOf(name), 0, targets[name], now)
			if !may || !d.Start(c, keyOf(name), false, now) {
				t.Fatalf("%s leaves by its stored target, and is held back", name)
			}
		}
		list := func() (all []v1alpha1.Assignment) {
			for name, target := range targets {
				all = append(all, assignment(name, target))
			}
			return all
		}
		reconcile := func(name string) {
			target, ok := targets[name]
			switch {
			case !ok:
				d.Update(keyOf(name), nil, now)
				return
			case IsLeaving(target):
				if leave(name); rapid.Bool().Draw(t, "leaves") {
					delete(targets, name)
				}
			default:
				if may, _ := d.MayLeave(c, keyOf(name), 0, present, now); may && d.Start(c, keyOf(name), false, now) {
					targets[name] = leaving
				}
			}
			if target, ok := targets[name]; ok {
				d.Update(keyOf(name), []v1alpha1.Target{target}, now)
			} else {
				d.Update(keyOf(name), nil, now)
			}
			moving := int32(0)
			for _, other := range targets {
				if IsLeaving(other) {
					moving++
				}
			}
			if moving > most {
				t.Fatalf("%d objects leave, at most %d may", moving, most)
			}
		}
		for range 400 {
			now = now.Add(time.Second)
			switch rapid.IntRange(0, 19).Draw(t, "event") {
			case 0:
				d = NewDrains() // another leader
			case 1, 2, 3, 4:
				d.Check(c, list(), now)
			default:
				reconcile(fmt.Sprintf("o%d", rapid.IntRange(0, 9).Draw(t, "object")))
			}
		}
		for range 200 { // the queue brings each object that it has, and Check the others
			now = now.Add(10 * time.Second)
			q := &queued{}
			d.SetQueue(q)
			d.Check(c, list(), now)
			for name, target := range targets {
				if IsLeaving(target) || slices.Contains(*q, name) || now.Unix()%20 == 0 {
					reconcile(name)
				}
			}
			if len(targets) == 0 {
				return
			}
		}
		t.Fatalf("%v have not left", targets)
	})
}
