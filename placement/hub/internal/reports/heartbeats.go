// SPDX-License-Identifier: Apache-2.0

package reports

import (
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/internal/stability"
)

const (
	// undatedDelay applies to an agent of an earlier version, which does not date its reports: it repeats a failed
	// report after at most a minute, and its heartbeat comes later.
	undatedDelay = time.Minute + stability.HeartbeatInterval
	// maxHeartbeatAge is how old the date of a cluster's reports may be, apart from that: three heartbeats. A move does
	// not rely on older reports.
	maxHeartbeatAge = 3 * stability.HeartbeatInterval
	// minHeartbeats is how many heartbeats of an agent compare its clock with the hub's. One may be late.
	minHeartbeats = 2
	// maxHeartbeats is how many of the last ones do. After an agent's clock was set back, the date of its reports does
	// not advance until these have come.
	maxHeartbeats = 8
)

// heartbeats date the reports of one cluster.
type heartbeats struct {
	holder  string
	renewed time.Time // by the agent's clock
	// offsets are the times of receipt less those of the agent's clock. The smallest one has the shortest delay.
	offsets []time.Duration
	// until is the time up to which all changes have been reported, by the hub's clock; zero: unknown.
	until time.Time
	// dated is false while the agent says that it cannot know of all changes.
	dated bool
	// maxAge is how old until may be.
	maxAge time.Duration
}

// observe reads a heartbeat that was received now, and reports whether until is later than before. The first one of
// an agent may be old.
func (h *heartbeats) observe(l *coordinationv1.Lease, now time.Time) (advanced bool) {
	holder := ptr.Deref(l.Spec.HolderIdentity, "")
	known := !h.renewed.IsZero() && h.holder == holder
	if l.Spec.RenewTime == nil || known && l.Spec.RenewTime.Time.Equal(h.renewed) {
		return false // repeated
	}
	isEarlier := known && l.Spec.RenewTime.Time.Before(h.renewed)
	if h.holder, h.renewed = holder, l.Spec.RenewTime.Time; isEarlier {
		return false // from a restored backup, or the agent's clock was set back
	}
	if !known {
		h.offsets = nil
		return false
	}
	if len(h.offsets) == maxHeartbeats {
		h.offsets = h.offsets[1:]
	}
	h.offsets = append(slices.Clip(h.offsets), now.Sub(h.renewed))
	var delay time.Duration
	delay, h.maxAge, h.dated = delayOf(l)
	if len(h.offsets) < minHeartbeats || !h.dated {
		return false
	}
	sent := h.renewed.Add(slices.Min(h.offsets))
	until := sent.Add(-delay)
	if !until.After(h.until) {
		return false
	}
	h.until = until
	return true
}

// completeUntil returns the time up to which all changes have been reported; zero while that is not known, or too long
// ago.
func (h *heartbeats) completeUntil(now time.Time) time.Time {
	if !h.dated || now.Sub(h.until) > h.maxAge {
		return time.Time{}
	}
	return h.until
}

// delayOf returns the age of the oldest change that the agent had not reported, and how old the date that follows from
// it may be; false when the agent did not know.
func delayOf(l *coordinationv1.Lease) (delay, maxAge time.Duration, ok bool) {
	text, at, _ := strings.Cut(l.Annotations[v1alpha1.ReportDelayAnnotation], "@")
	if at != l.Spec.RenewTime.UTC().Format(metav1.RFC3339Micro) { // an agent of an earlier version keeps what a later one has left
		return undatedDelay, undatedDelay + maxHeartbeatAge, true
	}
	delay, err := time.ParseDuration(text)
	return delay, maxHeartbeatAge, err == nil && delay >= 0
}
