// SPDX-License-Identifier: Apache-2.0

package works

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// haltedWorks remembers the Works that do not fit their records: their hub was restored from a
// backup, or is another one. None of them is carried out. While there is one the agent removes
// nothing, and applies no Work that it has no record of.
type haltedWorks struct {
	mu    sync.Mutex
	works map[string]bool
}

// update computes and notes whether a Work is halted. The computation runs under the lock, so
// that an older result never replaces a newer one. It tells whether other Works may go on now,
// or must wait now.
func (h *haltedWorks) update(work string, halted func() bool) (changed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	before := len(h.works) > 0
	if halted() {
		if h.works == nil {
			h.works = map[string]bool{}
		}
		h.works[work] = true
	} else {
		delete(h.works, work)
	}
	return before != (len(h.works) > 0)
}

// first returns the first halted Work by name, and how many there are.
func (h *haltedWorks) first() (name string, all int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.works) == 0 {
		return "", 0
	}
	return slices.Min(slices.Collect(maps.Keys(h.works))), len(h.works)
}

// continuesHistory tells whether a Work's spec is what a record has seen, or a later state of the same
// history: the hub whose leader wrote it knew of what the record has.
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

// matchesRecord tells whether a Work can be carried out by its record. Equal positions must have equal
// orders, unless a person has said that the cluster's stay.
func matchesRecord(work *v1alpha1.Work, rec *v1alpha1.AppliedWork) bool {
	s, record := &work.Spec, &rec.Spec.Work
	return continuesHistory(s, record) && (s.Position() != record.Position() || keepsClusterManifests(rec) || equalAsJSON(comparableSpec(s), comparableSpec(record)))
}

// comparableSpec are the fields that say what the object is and what happens to it. A record may lack
// any other: an agent that is older than its hub stores only the fields that it knows, and must
// not halt every Work after its own upgrade.
func comparableSpec(s *v1alpha1.WorkSpec) v1alpha1.WorkSpec {
	return v1alpha1.WorkSpec{Source: s.Source, Manifests: s.Manifests, Removal: s.Removal}
}

// keepsClusterManifests tells whether a record has manifests of its own, which are not the Work's: a person
// said so for this state of the Work.
func keepsClusterManifests(rec *v1alpha1.AppliedWork) bool {
	return rec.Annotations[v1alpha1.ResumeAnnotation] == v1alpha1.TakeCluster+":"+rec.Spec.Work.Position()
}

// isRemovalRequested tells whether a Work orders a removal. An order that a person has answered with
// TakeCluster is none.
func isRemovalRequested(work *v1alpha1.Work, rec *v1alpha1.AppliedWork) bool {
	if work == nil || work.Spec.Removal == nil {
		return false
	}
	return rec == nil || !keepsClusterManifests(rec) || work.Spec.Position() != rec.Spec.Work.Position()
}

// isSpecChanged tells whether a Work that fits its record says something else than that.
func isSpecChanged(work *v1alpha1.Work, rec *v1alpha1.AppliedWork) bool {
	if work.Spec.Position() == rec.Spec.Work.Position() && keepsClusterManifests(rec) {
		return false
	}
	return !equalAsJSON(rec.Spec.Work, work.Spec)
}

// resumeAnswer is what a person says to a Work that does not fit its record: TakeHub, TakeCluster,
// or "" when there is no answer, none that can be read, or one about another state of the record or
// of the Work. A hub that has changed the Work since may order what nobody has seen, and with
// TakeCluster that change would be lost.
func resumeAnswer(work *v1alpha1.Work, rec *v1alpha1.AppliedWork) string {
	record, at := rec.Spec.Work.Position(), work.Spec.Position()
	for _, take := range []string{v1alpha1.TakeHub, v1alpha1.TakeCluster} {
		if work.Annotations[v1alpha1.ResumeAnnotation] == v1alpha1.ResumeAnswer(take, record, at) {
			return take
		}
	}
	return ""
}

// resumedSpec is the spec that a record gets by an answer.
func resumedSpec(take string, work *v1alpha1.Work, rec *v1alpha1.AppliedWork) v1alpha1.WorkSpec {
	next := *work.Spec.DeepCopy()
	if take == v1alpha1.TakeCluster {
		at := next
		next = *rec.Spec.Work.DeepCopy()
		next.HubUID, next.Epoch, next.Term, next.Revision = at.HubUID, at.Epoch, at.Term, at.Revision
		next.History, next.Source, next.Removal = at.History, at.Source, nil
	}
	return next
}

// mismatchReport says how a Work does not fit its record.
func mismatchReport(cluster string, work *v1alpha1.Work, rec *v1alpha1.AppliedWork) (metav1.Condition, *v1alpha1.HaltedWork) {
	theirs, ours := positionText(&work.Spec), positionText(&rec.Spec.Work)
	if theirs == ours {
		ours += " with another content"
	}
	message := fmt.Sprintf("the Work is of %s, and this cluster's record is of %s: the hub was restored, or is another one. "+
		"The objects stay as the record says. Run at the hub: kubectl patchbay hub resume --in %s", theirs, ours, cluster)
	if text := work.Annotations[v1alpha1.ResumeAnnotation]; text != "" {
		about := v1alpha1.ResumeAnswer("", rec.Spec.Work.Position(), work.Spec.Position())
		message += fmt.Sprintf(". Annotation %s: %q is ignored: it must be %s or %s, followed by the present record and Work %q",
			v1alpha1.ResumeAnnotation, truncateMessage(text), v1alpha1.TakeHub, v1alpha1.TakeCluster, about)
	}
	return newCondition(v1alpha1.ConditionApplied, false, v1alpha1.ConditionHubMismatch, message),
		&v1alpha1.HaltedWork{Record: rec.Spec.Work.Position(), Work: work.Spec.Position(), Differences: manifestDifferences(&work.Spec, &rec.Spec.Work)}
}

// positionText is a position in words.
func positionText(s *v1alpha1.WorkSpec) string {
	return fmt.Sprintf("hub %s, epoch %q, term %d, revision %d", s.HubUID, s.Epoch, s.Term, s.Revision)
}

// maxDifferences is how many differences a report names.
const maxDifferences = 20

// manifestDifferences names what a Work would change in the cluster, by comparing manifests: what a
// cluster's own people changed is not the hub's. No value of a Secret is among them.
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

// decodeManifest reads a manifest; nil when it cannot be read.
func decodeManifest(m v1alpha1.Manifest) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	if json.Unmarshal(m.Object.Raw, &o.Object) != nil {
		return nil
	}
	return o
}

// displayName names the first object that is there.
func displayName(objects ...*unstructured.Unstructured) string {
	for _, o := range objects {
		if o != nil {
			return o.GetKind() + " " + strings.TrimPrefix(o.GetNamespace()+"/"+o.GetName(), "/")
		}
	}
	return "object"
}

// isSecret tells whether an object's values are not to be shown.
func isSecret(o *unstructured.Unstructured) bool {
	return o != nil && o.GroupVersionKind().GroupKind() == corev1.SchemeGroupVersion.WithKind("Secret").GroupKind()
}

func objectContent(o *unstructured.Unstructured) any {
	if o == nil {
		return nil
	}
	return o.Object
}

// diffValues calls note for each field, at whatever depth, that two values have not alike.
func diffValues(path string, a, b any, note func(path string, a, b any)) {
	x, isMap := a.(map[string]any)
	y, alsoMap := b.(map[string]any)
	if !isMap || !alsoMap {
		if !reflect.DeepEqual(a, b) {
			note(strings.TrimPrefix(path, "."), a, b)
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
		diffValues(path+"."+key, x[key], y[key], note)
	}
}

// abbreviate is a value in few words.
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

// equalAsJSON compares what two values say, however their manifests are written. Both API servers write
// JSON alike, as a rule, so that the first comparison mostly is enough.
func equalAsJSON(a, b any) bool {
	return reflect.DeepEqual(a, b) || reflect.DeepEqual(jsonValue(a), jsonValue(b))
}

// jsonValue is a value as JSON has it.
func jsonValue(value any) any {
	raw, err := json.Marshal(value)
	if err != nil {
		return err // of what is no JSON, and so from no API server
	}
	var p any
	if err := json.Unmarshal(raw, &p); err != nil {
		return err
	}
	return p
}
