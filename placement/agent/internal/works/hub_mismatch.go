// SPDX-License-Identifier: Apache-2.0

package works

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// continuesHistory tells whether a Work's spec is the recorded state, or a later one of the same history:
// its leader knew the recorded state.
func continuesHistory(s, record *v1alpha1.WorkSpec) bool {
	switch {
	case s.HubUID != record.HubUID, record.Term > 0 && s.Epoch != record.Epoch, s.Term < record.Term:
		return false
	case s.Term == record.Term, record.Term == 0: // a hub without terms only counted
		return s.Revision >= record.Revision
	}
	return slices.ContainsFunc(s.History, func(p v1alpha1.WorkPosition) bool {
		return p.Term == record.Term && p.Revision >= record.Revision
	})
}

// matchesRecord tells whether a Work continues its record. Equal positions must have equal content, unless
// a user has decided to keep the cluster's manifests.
func matchesRecord(work *v1alpha1.Work, rec *v1alpha1.AppliedWork) bool {
	s, record := &work.Spec, &rec.Spec.Work
	return continuesHistory(s, record) && (s.Position() != record.Position() || keepsClusterManifests(rec) || equalAsJSON(comparableSpec(s), comparableSpec(record)))
}

// comparableSpec returns the fields that decide what happens to the object. A record may lack other
// fields: an agent that is older than its hub stores only the fields that it knows, and must not halt
// every Work after its own upgrade.
func comparableSpec(s *v1alpha1.WorkSpec) v1alpha1.WorkSpec {
	return v1alpha1.WorkSpec{Source: s.Source, Manifests: s.Manifests, Removal: s.Removal}
}

// keepsClusterManifests tells whether a record keeps manifests that are not the Work's, because a user has
// decided so for this state of the Work.
func keepsClusterManifests(rec *v1alpha1.AppliedWork) bool {
	return rec.Annotations[v1alpha1.ResumeAnnotation] == v1alpha1.TakeCluster+":"+rec.Spec.Work.Position()
}

// isRemovalRequested tells whether a Work orders a removal. An order that a user has answered with
// TakeCluster does not count.
func isRemovalRequested(work *v1alpha1.Work, rec *v1alpha1.AppliedWork) bool {
	if work == nil || work.Spec.Removal == nil {
		return false
	}
	return rec == nil || !keepsClusterManifests(rec) || work.Spec.Position() != rec.Spec.Work.Position()
}

// isSpecChanged tells whether a Work that matches its record has another spec.
func isSpecChanged(work *v1alpha1.Work, rec *v1alpha1.AppliedWork) bool {
	if work.Spec.Position() == rec.Spec.Work.Position() && keepsClusterManifests(rec) {
		return false
	}
	return !equalAsJSON(rec.Spec.Work, work.Spec)
}

// resumeAnswer returns a user's answer to a halted Work: TakeHub or TakeCluster. It returns "" without an
// answer, for an invalid one, and for one about another state of the record or of the Work: the user has
// not seen a later change of the Work, and TakeCluster would lose it.
func resumeAnswer(work *v1alpha1.Work, rec *v1alpha1.AppliedWork) string {
	record, at := rec.Spec.Work.Position(), work.Spec.Position()
	for _, take := range []string{v1alpha1.TakeHub, v1alpha1.TakeCluster} {
		if work.Annotations[v1alpha1.ResumeAnnotation] == v1alpha1.ResumeAnswer(take, record, at) {
			return take
		}
	}
	return ""
}

// resumedSpec returns the spec that a record gets with an answer.
func resumedSpec(take string, work *v1alpha1.Work, rec *v1alpha1.AppliedWork) v1alpha1.WorkSpec {
	next := *work.Spec.DeepCopy()
	if take == v1alpha1.TakeCluster {
		hub := next
		next = *rec.Spec.Work.DeepCopy()
		next.HubUID, next.Epoch, next.Term, next.Revision = hub.HubUID, hub.Epoch, hub.Term, hub.Revision
		next.History, next.Source, next.Removal = hub.History, hub.Source, nil
	}
	return next
}

// mismatchReport returns how a Work differs from its record.
func mismatchReport(cluster string, work *v1alpha1.Work, rec *v1alpha1.AppliedWork) (metav1.Condition, *v1alpha1.HaltedWork) {
	theirs, ours := positionText(&work.Spec), positionText(&rec.Spec.Work)
	if theirs == ours {
		ours += " with other content"
	}
	message := fmt.Sprintf("the Work is of %s, and this cluster's record is of %s: the hub was restored, or is another one. "+
		"The objects stay as recorded. Run at the hub: kubectl patchbay hub resume --for-cluster %s", theirs, ours, cluster)
	if text := work.Annotations[v1alpha1.ResumeAnnotation]; text != "" {
		about := v1alpha1.ResumeAnswer("", rec.Spec.Work.Position(), work.Spec.Position())
		message += fmt.Sprintf(". Annotation %s: %q is ignored: it must be %s or %s, followed by the present record and Work %q",
			v1alpha1.ResumeAnnotation, truncateMessage(text), v1alpha1.TakeHub, v1alpha1.TakeCluster, about)
	}
	return newCondition(v1alpha1.ConditionApplied, false, v1alpha1.ReasonHubMismatch, message),
		&v1alpha1.HaltedWork{Record: rec.Spec.Work.Position(), Work: work.Spec.Position(), Differences: manifestDifferences(&work.Spec, &rec.Spec.Work)}
}

// positionText returns a position for messages.
func positionText(s *v1alpha1.WorkSpec) string {
	return fmt.Sprintf("hub %s, epoch %q, term %d, revision %d", s.HubUID, s.Epoch, s.Term, s.Revision)
}

// maxDifferences is how many differences a report names.
const maxDifferences = 20

// manifestDifferences lists what a Work would change in the cluster. It compares manifests, not live
// objects, whose other changes do not come from the hub. It lists no value of a Secret.
func manifestDifferences(work, record *v1alpha1.WorkSpec) []string {
	source := work.Source.Kind + " " + strings.TrimPrefix(work.Source.Namespace+"/"+work.Source.Name, "/")
	if work.Removal != nil {
		return []string{source + ": would be removed"}
	}
	var found []string
	if record.Removal != nil {
		found = append(found, source+": would no longer be removed")
	}
	for i := range max(len(work.Manifests), len(record.Manifests)) {
		var theirs, ours *unstructured.Unstructured
		if i < len(work.Manifests) {
			theirs = decodeManifest(work.Manifests[i])
		}
		if i < len(record.Manifests) {
			ours = decodeManifest(record.Manifests[i])
		}
		name := displayName(theirs, ours)
		diffValues("", objectContent(ours), objectContent(theirs), func(path string, there, hub any) {
			text := fmt.Sprintf("%s: %s: %s in the cluster, %s at the hub", name, path, abbreviate(there), abbreviate(hub))
			if isSecret(theirs) || isSecret(ours) {
				text = fmt.Sprintf("%s: %s: another value at the hub", name, path)
			}
			found = append(found, truncateMessage(text))
		})
		if theirs != nil && ours != nil && !equalAsJSON(work.Manifests[i].Secret, record.Manifests[i].Secret) {
			found = append(found, name+": data: another version at the hub")
		}
	}
	return found[:min(len(found), maxDifferences)]
}

// decodeManifest decodes a manifest; nil when it is invalid.
func decodeManifest(m v1alpha1.Manifest) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	if json.Unmarshal(m.Object.Raw, &o.Object) != nil {
		return nil
	}
	return o
}

// displayName names the first object that is not nil.
func displayName(objects ...*unstructured.Unstructured) string {
	for _, o := range objects {
		if o != nil {
			return o.GetKind() + " " + strings.TrimPrefix(o.GetNamespace()+"/"+o.GetName(), "/")
		}
	}
	return "object"
}

// isSecret tells whether an object's values must not be shown.
func isSecret(o *unstructured.Unstructured) bool {
	return o != nil && o.GroupVersionKind().GroupKind() == corev1.SchemeGroupVersion.WithKind("Secret").GroupKind()
}

func objectContent(o *unstructured.Unstructured) any {
	if o == nil {
		return nil
	}
	return o.Object
}

// diffValues calls report for each field, at any depth, in which two values differ.
func diffValues(path string, a, b any, report func(path string, a, b any)) {
	x, isMap := a.(map[string]any)
	y, alsoMap := b.(map[string]any)
	if !isMap || !alsoMap {
		if !reflect.DeepEqual(a, b) {
			report(strings.TrimPrefix(path, "."), a, b)
		}
		return
	}
	keys := slices.Collect(maps.Keys(x))
	for key := range y {
		if _, ok := x[key]; !ok {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	for _, key := range keys {
		diffValues(path+"."+key, x[key], y[key], report)
	}
}

// abbreviate returns a value for messages, if it is short.
func abbreviate(value any) string {
	const longest = 40
	if value == nil {
		return "nothing"
	}
	raw, err := json.Marshal(value)
	if err != nil || len(raw) > longest {
		return "another value"
	}
	return string(raw)
}

// equalAsJSON tells whether two values are equal as JSON, whatever the order and the white space of the raw
// manifests in them. Usually the first comparison is sufficient.
func equalAsJSON(a, b any) bool {
	return reflect.DeepEqual(a, b) || reflect.DeepEqual(jsonValue(a), jsonValue(b))
}

// jsonValue converts a value to the types that JSON decodes to.
func jsonValue(value any) any {
	raw, err := json.Marshal(value)
	if err != nil {
		return err // cannot be: it came from an API server
	}
	var p any
	if err := json.Unmarshal(raw, &p); err != nil {
		return err
	}
	return p
}
