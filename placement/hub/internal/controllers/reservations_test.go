// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"testing"
	"time"

	"github.com/patchbay-cni/patchbay/placement/hub/internal/limits"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/reports"
)

// A plan may fail after it has reserved room. When its object is deleted then, the room is free again.
func TestFailedPlanReturnsItsRoom(t *testing.T) {
	t.Parallel()
	h := newDependencyHub(t, nil)
	r := &objectReconciler{
		cached: h, kinds: &h.kinds, leadership: &leadership{ready: true}, reader: h.reader,
		capacity: limits.NewCapacity(time.Now), drains: limits.NewDrains(), reports: reports.NewTracker(time.Now), now: time.Now,
	}
	err := r.capacity.Reserve(dependentKey, func(limits.RoomFunc) (limits.Reservation, error) {
		return limits.Reservation{PerReplica: limits.Usage{Replicas: 1}, Replicas: map[string]int64{"east": 3}}, nil
	})
	if err != nil || r.capacity.Usage("east").Replicas != 3 {
		t.Fatalf("got %+v, %v, want 3 replicas", r.capacity.Usage("east"), err)
	}
	if _, err := r.Reconcile(t.Context(), dependentKey); err != nil {
		t.Fatal(err)
	}
	if got := r.capacity.Usage("east"); got != (limits.Usage{}) {
		t.Errorf("after the deletion: got %+v in use, want nothing", got)
	}
}
