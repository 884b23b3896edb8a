// SPDX-License-Identifier: Apache-2.0

package danmep

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
	"github.com/patchbay-cni/patchbay/internal/text"
)

const (
	// reportInterval is the time between two checks of the journal.
	reportInterval = 10 * time.Second
	// reportDelay is how long a sandbox has no DanmEp before it is reported: the Publisher creates most of them within a
	// second, and the writes of all nodes go to all nodes.
	reportDelay = 30 * time.Second
	// textInterval is how long a report of the same Pods stays as it is. Errors may have other words at each attempt.
	textInterval = time.Minute
)

// Reporter reports the Pods that are attached and have no DanmEp, in this node's NodeNetwork. No other object names them:
// an uninstallation would go on under them, and Services do not reach them.
type Reporter struct {
	// Records returns the readable records of the journal, and an error if others are corrupt.
	Records func() ([]*attach.Record, error)
	// Failure returns why the Publisher could not process a record, or nil.
	Failure func(attach.RecordKey) error
	// Report writes the condition, or removes it if it is nil. It writes nothing if it is so already.
	Report func(context.Context, *metav1.Condition) error

	began time.Time
	// since is since when the records have no DanmEp.
	since map[attach.RecordKey]time.Time
	// last is the condition of the last check, and lastPods are all Pods that it is about.
	last     *metav1.Condition
	lastPods []string
	// isCleared is whether the NodeNetwork has no condition, also none of an earlier daemon.
	isCleared bool
}

// Run checks the journal at intervals until ctx ends.
func (r *Reporter) Run(ctx context.Context) error {
	r.began = time.Now()
	tick := time.NewTicker(reportInterval)
	defer tick.Stop()
	for {
		if err := r.check(ctx); err != nil && ctx.Err() == nil {
			logr.FromContextOrDiscard(ctx).Info("Failed to report Pods without a DanmEp", "error", err.Error())
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// check reports what has no DanmEp for long. While there is nothing, it sends no request.
func (r *Reporter) check(ctx context.Context) error {
	c := r.condition(time.Now())
	// The condition of an earlier daemon stays until this one knows better. The first check is later than began, so a Pod
	// of that condition may be reported one interval later.
	if c == nil && (r.isCleared || time.Since(r.began) < reportDelay+reportInterval) {
		return nil
	}
	if err := r.Report(ctx, c); err != nil {
		return err
	}
	r.isCleared = c == nil
	return nil
}

// condition returns the condition, or nil if no Pod has been without a DanmEp for long.
func (r *Reporter) condition(now time.Time) *metav1.Condition {
	records, _ := r.Records() // the Watcher logs the corrupt ones
	since, pods := map[attach.RecordKey]time.Time{}, map[string]string{}
	for _, rec := range records {
		if !recordLacksDanmEp(rec) {
			continue
		}
		key := rec.Key()
		since[key] = now
		if before, ok := r.since[key]; ok {
			since[key] = before
		}
		if now.Sub(since[key]) < reportDelay {
			continue
		}
		pod := rec.PodNamespace + "/" + rec.PodName
		pods[pod] = pod
		if err := r.Failure(key); err != nil {
			pods[pod] = fmt.Sprintf("%s (%s)", pod, text.Truncate(strings.ReplaceAll(err.Error(), "\n", "; "), maxFailure))
		}
	}
	r.since = since
	names := slices.Sorted(maps.Keys(pods))
	switch isNew := !slices.Equal(names, r.lastPods); {
	case len(pods) == 0:
		r.last = nil
	case isNew || now.Sub(r.last.LastTransitionTime.Time) >= textInterval:
		r.last = &metav1.Condition{
			Type: v1.ConditionDanmEpsMissing, Status: metav1.ConditionTrue, Reason: v1.ReasonDanmEpNotCreated,
			Message: fmt.Sprintf("%d Pods are attached and have no DanmEp: %s", len(pods), firstOf(pods)), LastTransitionTime: metav1.NewTime(now),
		}
	}
	r.lastPods = names
	return r.last
}

const (
	// maxReported is how many Pods a message names, and maxFailure bounds the error of one.
	maxReported = 5
	maxFailure  = 300
)

// firstOf joins the first texts in the order of the keys.
func firstOf(pods map[string]string) string {
	names := slices.Sorted(maps.Keys(pods))
	first := names[:min(len(names), maxReported)]
	for i, name := range first {
		first[i] = pods[name]
	}
	joined := strings.Join(first, ", ")
	if more := len(names) - maxReported; more > 0 {
		joined += fmt.Sprintf(" and %d more", more)
	}
	return joined
}

// recordLacksDanmEp reports whether an interface of the record exists and has no DanmEp.
func recordLacksDanmEp(rec *attach.Record) bool {
	if rec.State != attach.Attached && rec.State != attach.Detaching || rec.OnNodeConfiguration() {
		return false
	}
	return slices.ContainsFunc(rec.Interfaces, func(ifc attach.Interface) bool { return ifc.EndpointUID == "" })
}
