// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	danm "github.com/patchbay-cni/patchbay/api/v1"
)

// manifestStatus is the entry of one object in a report.
func (w *worker) manifestStatus(t target, live *unstructured.Unstructured, entry *v1alpha1.AppliedObject,
	associated v1alpha1.AssociatedMode, err error,
) v1alpha1.ManifestStatus {
	ms := v1alpha1.ManifestStatus{
		Group: t.gvr.Group, Kind: t.object.GetKind(), Namespace: t.object.GetNamespace(), Name: t.object.GetName(),
		Conditions: []metav1.Condition{manifestCondition(err)},
	}
	if entry != nil {
		ms.AppliedGeneration, ms.SourceGeneration = entry.AppliedGeneration, entry.SourceGeneration
	}
	if live == nil || entry == nil || live.GetUID() != entry.UID {
		return ms
	}
	ms.UID, ms.Generation = live.GetUID(), live.GetGeneration()
	if n, found, err := unstructured.NestedInt64(live.Object, "spec", "replicas"); found && err == nil {
		replicas := int32(n)
		ms.Replicas = &replicas
	}
	ms.Status, ms.Truncated = exactStatus(live)
	ms.Ready = ready(live)
	if associated != v1alpha1.AssociatedNone && runsPods(live) {
		ms.Associated = w.pods.of(live.GetUID())
	}
	return ms
}

// maxClaims is how many claims a report names.
const maxClaims = 16

// volumeClaims names the claims that Pods of an object use. Those that were reported before stay
// while they are there: an operator that restarts all its Pods keeps its data.
func (w *worker) volumeClaims(ctx context.Context, uid types.UID, before v1alpha1.ManifestStatus) []string {
	if uid == "" {
		return nil
	}
	found := w.pods.claims(uid)
	for _, claim := range before.VolumeClaims {
		if before.UID == uid && !found[claim] {
			found[claim] = !w.applier.noClaim(ctx, claim)
		}
	}
	maps.DeleteFunc(found, func(_ string, there bool) bool { return !there })
	names := slices.Sorted(maps.Keys(found))
	return names[:min(len(names), maxClaims)]
}

// unusedClaims tells whether a report names claims that no Pod uses now.
func (w *worker) unusedClaims(ms v1alpha1.ManifestStatus) bool {
	used := w.pods.claims(ms.UID)
	return slices.ContainsFunc(ms.VolumeClaims, func(claim string) bool { return !used[claim] })
}

// told is what the hub was told last of a target.
func (t target) told(work *v1alpha1.Work) v1alpha1.ManifestStatus {
	if work != nil {
		for _, m := range work.Status.Manifests {
			if m.Group == t.gvr.Group && m.Kind == t.object.GetKind() && m.Namespace == t.object.GetNamespace() && m.Name == t.object.GetName() {
				return m
			}
		}
	}
	return v1alpha1.ManifestStatus{}
}

// lastWords keeps what was told of an object that is gone and does not run again: whether
// it had done its work, and that there was one.
func lastWords(now, before v1alpha1.ManifestStatus) v1alpha1.ManifestStatus {
	now.UID, now.Generation, now.Status = before.UID, before.Generation, before.Status
	now.AppliedGeneration, now.SourceGeneration = before.AppliedGeneration, before.SourceGeneration
	return now
}

// exactStatus is the object's status as it is. Of our own networks only what does not
// change with every address that a Pod gets: else each claim were a write at the hub. Of a
// status that is too large come conditions and counts.
func exactStatus(live *unstructured.Unstructured) (status *runtime.RawExtension, truncated bool) {
	value, _ := live.Object["status"].(map[string]any)
	if len(value) == 0 {
		return nil, false
	}
	if live.GroupVersionKind().Group == danm.GroupName {
		kept := map[string]any{}
		for _, field := range []string{"conditions", "allocated", "capacity"} {
			if v, ok := value[field]; ok {
				kept[field] = v
			}
		}
		value = kept
	}
	if size(value) > v1alpha1.MaxStatusBytes {
		truncated, value = true, truncate(value, v1alpha1.MaxStatusBytes)
	}
	raw, err := json.Marshal(value)
	if err != nil {
		return nil, false // cannot be: it was decoded from JSON
	}
	return &runtime.RawExtension{Raw: raw}, truncated
}

// truncate keeps of a status the observedGeneration, the other numbers and the conditions with
// short messages, in this order, as far as they fit.
func truncate(status map[string]any, limit int) map[string]any {
	kept, left := map[string]any{}, limit-size(map[string]any{"conditions": []any{}})
	take := func(field string, value any) bool {
		left -= size(map[string]any{field: value})
		return left >= 0
	}
	fields := slices.Sorted(maps.Keys(status))
	slices.SortStableFunc(fields, func(a, b string) int { return cmp.Compare(rank(a), rank(b)) })
	for _, field := range fields {
		switch value := status[field].(type) {
		case int64, float64:
			if take(field, value) {
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
				short[field] = shorten(value)
			case int64:
				short[field] = value
			}
		}
		if take("", short) {
			list = append(list, short)
		}
	}
	if list != nil {
		kept["conditions"] = list
	}
	return kept
}

// rank puts observedGeneration before all other fields.
func rank(field string) int {
	if field == "observedGeneration" {
		return 0
	}
	return 1
}

// size is how many bytes a value has as JSON.
func size(value any) int {
	raw, err := json.Marshal(value)
	if err != nil {
		return 0 // cannot be: it was decoded from JSON, or is a type of ours
	}
	return len(raw)
}

// reserved is what is left in MaxObjectBytes for the metadata that API servers add.
const reserved = 16 << 10

// bound shortens a Work's status until the Work is no larger than MaxObjectBytes: it truncates the
// statuses of its objects, then leaves out the details of Pods, then the statuses.
func bound(work *v1alpha1.Work, status *v1alpha1.WorkStatus) {
	whole := v1alpha1.Work{ObjectMeta: work.ObjectMeta, Spec: work.Spec}
	whole.ManagedFields = nil
	left := v1alpha1.MaxObjectBytes - reserved - size(whole)
	for _, shrink := range []func(m *v1alpha1.ManifestStatus){
		func(m *v1alpha1.ManifestStatus) {
			value := map[string]any{}
			if m.Status != nil && json.Unmarshal(m.Status.Raw, &value) == nil {
				raw, err := json.Marshal(truncate(value, max(left, 0)/len(status.Manifests)))
				if err == nil {
					m.Status, m.Truncated = &runtime.RawExtension{Raw: raw}, true
				}
			}
		},
		func(m *v1alpha1.ManifestStatus) { m.Associated = nil },
		func(m *v1alpha1.ManifestStatus) { m.Status, m.Truncated = nil, m.Status != nil || m.Truncated },
	} {
		for i := range status.Manifests {
			if size(status) <= left {
				return
			}
			shrink(&status.Manifests[i])
		}
	}
}

// ready is kstatus' answer.
func ready(live *unstructured.Unstructured) bool {
	result, err := status.Compute(live)
	return err == nil && result.Status == status.CurrentStatus
}

// runsPods tells whether Pods may be made for an object: built-in kinds without a
// Pod template have none; other kinds may.
func runsPods(live *unstructured.Unstructured) bool {
	group := live.GroupVersionKind().Group
	if group == "apps" || group == "batch" {
		return true
	}
	return strings.Contains(group, ".") && !strings.HasSuffix(group, ".k8s.io") && group != danm.GroupName
}

// manifestCondition says whether the object is as the Work says.
func manifestCondition(err error) metav1.Condition {
	if err == nil {
		return condition(v1alpha1.ConditionApplied, true, v1alpha1.ReasonSettled, "")
	}
	if r, ok := errors.AsType[*refusal](err); ok {
		return condition(v1alpha1.ConditionApplied, false, r.reason, r.message)
	}
	return condition(v1alpha1.ConditionApplied, false, v1alpha1.ReasonProgressing, err.Error())
}

// appliedCondition sums up all manifests.
func appliedCondition(errs []error) metav1.Condition {
	if len(errs) == 0 {
		return manifestCondition(nil)
	}
	var messages []string
	for _, err := range errs {
		messages = append(messages, manifestCondition(err).Message)
	}
	return condition(v1alpha1.ConditionApplied, false, manifestCondition(errs[0]).Reason, strings.Join(messages, "; "))
}

// readyCondition sums up all manifests.
func readyCondition(manifests []v1alpha1.ManifestStatus) metav1.Condition {
	for _, m := range manifests {
		if !m.Ready {
			return condition(v1alpha1.ConditionReady, false, v1alpha1.ReasonProgressing, m.Kind+" "+m.Name+" is not ready")
		}
	}
	return condition(v1alpha1.ConditionReady, true, v1alpha1.ReasonSettled, "")
}

// keepTimes gives conditions the times of those that say the same already, as
// meta.SetStatusCondition does for one.
func keepTimes(now *v1alpha1.WorkStatus, before v1alpha1.WorkStatus) {
	now.Conditions = merge(before.Conditions, now.Conditions)
	for i := range now.Manifests {
		var old []metav1.Condition
		if i < len(before.Manifests) && before.Manifests[i].Name == now.Manifests[i].Name {
			old = before.Manifests[i].Conditions
		}
		now.Manifests[i].Conditions = merge(old, now.Manifests[i].Conditions)
	}
}

func merge(old, now []metav1.Condition) []metav1.Condition {
	var merged []metav1.Condition
	for _, c := range now {
		if was := meta.FindStatusCondition(old, c.Type); was != nil && was.Status == c.Status {
			c.LastTransitionTime = was.LastTransitionTime
		} else if c.LastTransitionTime.IsZero() {
			c.LastTransitionTime = metav1.Now()
		}
		merged = append(merged, c)
	}
	return merged
}
