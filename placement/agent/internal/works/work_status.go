// SPDX-License-Identifier: Apache-2.0

package works

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"

	danm "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/agent/internal/records"
)

// manifestResult is what applying one manifest did, and what the agent read of its object.
type manifestResult struct {
	// object is the decoded manifest; empty for an invalid one, of which only resource is known.
	object   desiredObject
	resource string
	// err is why the object is not applied.
	err error
	// live is the object in the cluster; nil when there is none, or it is not the agent's.
	live *unstructured.Unstructured
	// entry is the object's entry for the record; nil when the agent has no object.
	entry *v1alpha1.AppliedObject
	// before is the last report on the object.
	before v1alpha1.ManifestStatus
	// startedCreation is true when the agent has recorded that it creates the object, which runs once.
	startedCreation bool
	// notCreated is true when that created nothing.
	notCreated bool
	// unread is the UID of an object that could not be read, and is not known to be gone.
	unread types.UID
	// digest of the agent's fields, if the object is applied.
	digest string
	// autoscaled is true when the agent leaves spec.replicas to another field manager.
	autoscaled   bool
	volumeClaims []string
	associated   *v1alpha1.Associated
	refused      *v1alpha1.RefusedReplicas
	// refusedCheck is when more replicas may be refused; 0: when something changes.
	refusedCheck time.Duration
	volume       *v1alpha1.VolumeReport
}

// isRecorded tells whether the live object is the one in the record.
func (r *manifestResult) isRecorded() bool {
	return r.live != nil && r.entry != nil && r.live.GetUID() == r.entry.UID
}

// uid returns the UID of the object for the report; "" when the agent has none.
func (r *manifestResult) uid() types.UID {
	if r.isRecorded() || r.live != nil && r.live.GetUID() == r.before.UID { // reported, and its record is lost
		return r.live.GetUID()
	}
	return r.unread
}

// status returns the entry of the object for the report.
func (r *manifestResult) status() v1alpha1.ManifestStatus {
	conditions := []metav1.Condition{manifestCondition(r.err)}
	if r.object.object == nil {
		return v1alpha1.ManifestStatus{Kind: "unknown", Name: r.resource, Conditions: conditions}
	}
	o := r.object.object
	ms := v1alpha1.ManifestStatus{
		Group: r.object.gvr.Group, Kind: o.GetKind(), Namespace: o.GetNamespace(), Name: o.GetName(),
		UID: r.uid(), VolumeClaims: r.volumeClaims, Associated: r.associated, Conditions: conditions,
		RefusedReplicas: r.refused,
		Volume:          r.volume,
	}
	if r.entry != nil {
		ms.AppliedGeneration, ms.SourceGeneration = r.entry.AppliedGeneration, r.entry.SourceGeneration
	}
	if r.isRecorded() {
		ms.Generation = r.live.GetGeneration()
		if n, found, err := unstructured.NestedInt64(r.live.Object, "spec", "replicas"); found && err == nil {
			ms.Replicas = new(int32(n))
			if r.autoscaled {
				ms.AutoscaledReplicas = new(int32(n))
			}
		}
		ms.Status, ms.Truncated = reportedStatus(r.live)
		ms.Ready = isReady(r.live)
	}
	if e, ok := errors.AsType[*conditionError](r.err); ok && e.reason == v1alpha1.ReasonDeletedInCluster && r.before.UID != "" {
		// What runs once keeps its last report, which tells whether it had finished.
		ms.UID, ms.Generation, ms.Status = r.before.UID, r.before.Generation, r.before.Status
		ms.AppliedGeneration, ms.SourceGeneration = r.before.AppliedGeneration, r.before.SourceGeneration
	}
	return ms
}

// reportedStatus returns the status of a live object for the report: the exact one, or conditions and counts
// of one that is too large. Of DANM's networks it returns only the fields that the controller writes, seldom:
// with the bitmap, each address claim would be a write at the hub.
func reportedStatus(live *unstructured.Unstructured) (status *runtime.RawExtension, truncated bool) {
	value, _ := live.Object["status"].(map[string]any)
	if len(value) == 0 {
		return nil, false
	}
	if live.GroupVersionKind().Group == danm.GroupName {
		kept := map[string]any{}
		for _, field := range []string{"conditions", "pools"} {
			if v, ok := value[field]; ok {
				kept[field] = v
			}
		}
		value = kept
	}
	if jsonSize(value) > v1alpha1.MaxStatusBytes {
		truncated, value = true, truncateStatus(value, v1alpha1.MaxStatusBytes)
	}
	raw, err := json.Marshal(value)
	if err != nil {
		return nil, false // cannot be: it was decoded from JSON
	}
	return &runtime.RawExtension{Raw: raw}, truncated
}

// truncateStatus keeps observedGeneration, the other numbers and the conditions with shortened messages, in
// this order, as far as they fit into limit bytes.
func truncateStatus(status map[string]any, limit int) map[string]any {
	kept, left := map[string]any{}, limit-jsonSize(map[string]any{"conditions": []any{}})
	fits := func(field string, value any) bool {
		left -= jsonSize(map[string]any{field: value})
		return left >= 0
	}
	fields := slices.Sorted(maps.Keys(status))
	slices.SortStableFunc(fields, func(a, b string) int { return cmp.Compare(fieldRank(a), fieldRank(b)) })
	for _, field := range fields {
		switch value := status[field].(type) {
		case int64, float64:
			if fits(field, value) {
				kept[field] = value
			}
		}
	}
	conditions, _ := status["conditions"].([]any)
	var list []any
	for _, c := range conditions {
		c, _ := c.(map[string]any)
		short := map[string]any{}
		for _, field := range []string{"type", "status", "reason", "message", "lastTransitionTime", "observedGeneration"} {
			switch value := c[field].(type) {
			case string:
				short[field] = truncateMessage(value)
			case int64:
				short[field] = value
			}
		}
		if fits("", short) {
			list = append(list, short)
		}
	}
	if list != nil {
		kept["conditions"] = list
	}
	return kept
}

// fieldRank sorts observedGeneration before all other fields.
func fieldRank(field string) int {
	if field == "observedGeneration" {
		return 0
	}
	return 1
}

// isReady tells whether an object is ready, as kstatus computes it.
func isReady(live *unstructured.Unstructured) bool {
	result, err := status.Compute(live)
	return err == nil && result.Status == status.CurrentStatus
}

// resultErrors returns the errors of the results.
func resultErrors(results []manifestResult) []error {
	var errs []error
	for i := range results {
		if results[i].err != nil {
			errs = append(errs, results[i].err)
		}
	}
	return errs
}

// computeStatuses returns the status of a record and of its Work (without term and revision) after its
// manifests were applied. work is nil when it is gone from the hub, which is certain when synced.
func computeStatuses(cluster string, work *v1alpha1.Work, rec *v1alpha1.AppliedWork, results []manifestResult, synced bool) (v1alpha1.AppliedWorkStatus, v1alpha1.WorkStatus) {
	record, report := *rec.Status.DeepCopy(), v1alpha1.WorkStatus{}
	for i := range results {
		report.Manifests = append(report.Manifests, results[i].status())
		switch entry := results[i].entry; {
		case entry != nil:
			record.Objects = upsertEntry(record.Objects, *entry)
		case results[i].notCreated:
			record.Objects = removeEntry(record.Objects, results[i].object)
		}
	}
	record.Revision = rec.Spec.Work.Revision
	applied := appliedCondition(resultErrors(results))
	if work != nil && !matchesRecord(work, rec) {
		applied, report.Halted = mismatchReport(cluster, work, rec)
		mismatch := applied
		mismatch.Type, mismatch.Status = v1alpha1.ConditionHubMismatch, metav1.ConditionTrue
		meta.SetStatusCondition(&record.Conditions, applied)
		meta.SetStatusCondition(&record.Conditions, mismatch)
	} else {
		meta.SetStatusCondition(&record.Conditions, applied)
		meta.RemoveStatusCondition(&record.Conditions, v1alpha1.ConditionHubMismatch)
	}
	switch {
	case work != nil:
		meta.RemoveStatusCondition(&record.Conditions, v1alpha1.ConditionOrphaned)
	case synced:
		meta.SetStatusCondition(&record.Conditions, newCondition(v1alpha1.ConditionOrphaned, true, v1alpha1.ReasonOrphaned,
			"the hub's Work was deleted without a removal order: the agent keeps and repairs the objects"))
	}
	report.Conditions = []metav1.Condition{applied, readyCondition(report.Manifests)}
	return record, report
}

// upsertEntry replaces the entry of an object, or appends it.
func upsertEntry(entries []v1alpha1.AppliedObject, entry v1alpha1.AppliedObject) []v1alpha1.AppliedObject {
	key := func(o v1alpha1.AppliedObject) string {
		return records.ObjectKey(o.Group, o.Resource, o.Namespace, o.Name)
	}
	i := slices.IndexFunc(entries, func(o v1alpha1.AppliedObject) bool { return key(o) == key(entry) })
	if i < 0 {
		return append(entries, entry)
	}
	entries[i] = entry
	return entries
}

// removeEntry removes the entry of an object.
func removeEntry(entries []v1alpha1.AppliedObject, t desiredObject) []v1alpha1.AppliedObject {
	return slices.DeleteFunc(entries, func(o v1alpha1.AppliedObject) bool {
		return records.ObjectKey(o.Group, o.Resource, o.Namespace, o.Name) == t.key()
	})
}

// appliedCondition returns the condition Applied of a Work, with the errors of its manifests.
func appliedCondition(errs []error) metav1.Condition {
	if len(errs) == 0 {
		return manifestCondition(nil)
	}
	var messages []string
	for _, err := range errs {
		messages = append(messages, manifestCondition(err).Message)
	}
	return newCondition(v1alpha1.ConditionApplied, false, manifestCondition(errs[0]).Reason, strings.Join(messages, "; "))
}

// readyCondition returns the condition Ready of a Work.
func readyCondition(manifests []v1alpha1.ManifestStatus) metav1.Condition {
	for _, m := range manifests {
		if !m.Ready {
			return newCondition(v1alpha1.ConditionReady, false, v1alpha1.ReasonProgressing, m.Kind+" "+m.Name+" is not ready")
		}
	}
	return newCondition(v1alpha1.ConditionReady, true, v1alpha1.ReasonAsExpected, "")
}

// jsonSize returns the size of a value as JSON, in bytes.
func jsonSize(value any) int {
	raw, err := json.Marshal(value)
	if err != nil {
		return 0 // cannot be: it was decoded from JSON, or is an API type
	}
	return len(raw)
}
