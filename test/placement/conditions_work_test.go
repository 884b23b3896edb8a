// SPDX-License-Identifier: Apache-2.0

//go:build placement

package placement

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

func asJSON(value any) string {
	raw, err := json.Marshal(value)
	if err != nil {
		return err.Error()
	}
	return string(raw)
}

// manifest reads one.
func manifest(m v1alpha1.Manifest) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	if utiljson.Unmarshal(m.Object.Raw, &o.Object) != nil {
		o.Object = map[string]any{}
	}
	return o
}

// isOlderThanRecord tells whether a Work is of another hub than its record, or of an earlier state of it.
func isOlderThanRecord(w, record *v1alpha1.WorkSpec) bool {
	switch {
	case w.HubUID != record.HubUID, w.Epoch != record.Epoch, w.Term < record.Term:
		return true
	case w.Term == record.Term:
		return w.Revision < record.Revision
	}
	return !slices.ContainsFunc(w.History, func(p v1alpha1.WorkPosition) bool { return p.Term == record.Term && p.Revision >= record.Revision })
}

func matches(f *snapshot, s *reportedCondition) string {
	work := f.mismatchedWork(s, false)
	return reasonUnless(work == "", "Work %s is behind its record", work)
}

func mismatches(f *snapshot, s *reportedCondition) string {
	return reasonUnless(f.mismatchedWork(s, true) != "", "each Work is what its record has")
}

// isMadeFromSource tells whether an object was made of a Work's source, by its hub.
func isMadeFromSource(o *unstructured.Unstructured, spec *v1alpha1.WorkSpec) bool {
	a := o.GetAnnotations()
	return a[v1alpha1.SourceUIDAnnotation] == string(spec.Source.UID) && a[v1alpha1.HubUIDAnnotation] == string(spec.HubUID)
}

// applied: the cluster has each object as the Work says, and has recorded that.
func applied(f *snapshot, s *reportedCondition) string {
	c := s.workState
	record := f.appliedWork(c.cluster, c.name)
	switch {
	case c.revision < c.spec.Revision:
		return fmt.Sprintf("revision %d is carried out, and %d is the present one", c.revision, c.spec.Revision)
	case record == nil || record.Spec.Work.Revision != c.spec.Revision:
		return fmt.Sprintf("%s has no record of revision %d", c.cluster, c.spec.Revision)
	}
	for i, m := range c.manifests {
		o, want := f.liveObject(c, m), manifest(m)
		name := m.Resource + " " + want.GetName()
		switch {
		case o == nil:
			return name + " is not there"
		case o.GetDeletionTimestamp() != nil:
			return name + " is being deleted"
		case !isMadeFromSource(o, c.spec):
			return fmt.Sprintf("%s was not made of it: %v", name, o.GetAnnotations())
		case i < len(c.uids) && c.uids[i] != o.GetUID():
			return fmt.Sprintf("%s has UID %s, not %s", name, o.GetUID(), c.uids[i])
		case len(c.spec.Apply.CreateOnly)+len(c.spec.Apply.Yield) > 0, record.Annotations[v1alpha1.ResumeAnnotation] != "":
			continue // its fields are others' to decide
		}
		if why := firstMissingField(name, want.Object, o.Object); why != "" {
			return why
		}
	}
	return ""
}

// firstMissingField names a field that an object has not as it is to be; "" for none. Lists are left out: the
// API server merges them in many ways.
func firstMissingField(path string, want, is any) string {
	switch want := want.(type) {
	case map[string]any:
		there, _ := is.(map[string]any)
		for _, field := range slices.Sorted(maps.Keys(want)) {
			if field == "metadata" || field == "status" {
				continue
			}
			if why := firstMissingField(path+"."+field, want[field], there[field]); why != "" {
				return why
			}
		}
	case string, bool, int64, float64:
		empty := want == "" || want == false || want == int64(0)
		return reasonUnless(want == is || is == nil && empty, "%s is %v, not %v", path, is, want)
	}
	return ""
}

// unapplied: the cluster has not all that the Work says.
func unapplied(f *snapshot, s *reportedCondition) string {
	return reasonUnless(applied(f, s) != "", "%s has all that it says", s.workState.cluster)
}

func progressing(f *snapshot, s *reportedCondition) string {
	data := slices.ContainsFunc(s.workState.manifests, func(m v1alpha1.Manifest) bool { return m.Secret != nil })
	if data || s.workState.spec.Removal != nil { // nothing tells of data, or of rights, that are on their way
		return ""
	}
	return unapplied(f, s)
}

// refused: what the message wants to be labelled is not, and the rest is not done.
func refused(f *snapshot, s *reportedCondition) string {
	c := s.workState
	if c.spec.Removal != nil {
		return reasonUnless(f.anyLive(c, func(*unstructured.Unstructured) bool { return true }), "nothing of it is there")
	}
	for at, o := range f.objects {
		if o == nil || at.cluster != c.cluster {
			continue
		}
		command := fmt.Sprintf("kubectl label %s %s %s=", strings.ToLower(o.GetKind()), o.GetName(), v1alpha1.AccessLabel)
		if _, label, ok := strings.Cut(s.Message, command); ok && strings.HasPrefix(label, o.GetLabels()[v1alpha1.AccessLabel]) {
			return reasonUnless(o.GetLabels()[v1alpha1.AccessLabel] == "", "%s %s is labelled so", o.GetKind(), o.GetName())
		}
	}
	return unapplied(f, s)
}

// conflicts: the object is somebody else's, or a manager that is named has fields of it.
func conflicts(f *snapshot, s *reportedCondition) string {
	return reasonUnless(f.anyLive(s.workState, func(o *unstructured.Unstructured) bool {
		return !isMadeFromSource(o, s.workState.spec) || slices.ContainsFunc(o.GetManagedFields(), func(e metav1.ManagedFieldsEntry) bool {
			return e.Manager != v1alpha1.AgentFieldManager && strings.Contains(s.Message, strconv.Quote(e.Manager))
		})
	}), "nobody else who is named has a field of it: %q", s.Message)
}

func gone(f *snapshot, s *reportedCondition) string {
	return reasonUnless(slices.ContainsFunc(s.workState.manifests, func(m v1alpha1.Manifest) bool {
		return (m.Resource == "pods" || m.Resource == "jobs") && f.liveObject(s.workState, m) == nil
	}), "no Pod or Job of it is missing")
}

// recordLost: an object that is to be removed may be there, by its UID or by what an agent gave it, and
// there is no record.
func recordLost(f *snapshot, s *reportedCondition) string {
	c := s.workState
	there := f.anyLive(c, func(o *unstructured.Unstructured) bool {
		by := func(e metav1.ManagedFieldsEntry) bool { return e.Manager == v1alpha1.AgentFieldManager }
		return o.GetAnnotations()[v1alpha1.HubUIDAnnotation] != "" || o.GetLabels()[v1alpha1.ManagedLabel] != "" ||
			slices.ContainsFunc(o.GetManagedFields(), by) || c.spec.Removal != nil && slices.Contains(c.spec.Removal.UIDs, o.GetUID())
	})
	recorded := f.appliedWork(c.cluster, c.name) != nil
	return reasonUnless(c.spec.Removal != nil && there && !recorded, "removal %v, there: %t, recorded: %t", c.spec.Removal, there, recorded)
}

func removalBlocked(f *snapshot, s *reportedCondition) string {
	return reasonUnless(s.workState.spec.Removal != nil && f.anyLive(s.workState, func(o *unstructured.Unstructured) bool {
		named := func(finalizer string) bool { return strings.Contains(s.Message, finalizer) }
		return o.GetDeletionTimestamp() != nil && (len(o.GetFinalizers()) == 0 || slices.ContainsFunc(o.GetFinalizers(), named))
	}), "nothing is being deleted, and held by what is named: %q", s.Message)
}

// removed: no object that was made of the source is there, and no record.
func removed(f *snapshot, s *reportedCondition) string {
	c := s.workState
	there := f.anyLive(c, func(o *unstructured.Unstructured) bool { return isMadeFromSource(o, c.spec) })
	recorded := f.appliedWork(c.cluster, c.name) != nil
	return reasonUnless(c.spec.Removal != nil && !there && !recorded, "removal %v, there: %t, recorded: %t", c.spec.Removal, there, recorded)
}

func workTooLarge(_ *snapshot, s *reportedCondition) string {
	n := len(asJSON(s.workState.spec))
	return reasonUnless(n > v1alpha1.MaxManifestBytes, "it has %d bytes", n)
}

func ready(f *snapshot, s *reportedCondition) string { return f.unreadyObject(s.workState) }

func unready(f *snapshot, s *reportedCondition) string {
	return reasonUnless(f.unreadyObject(s.workState) != "", "all of it is ready")
}

func orphaned(f *snapshot, s *reportedCondition) string {
	return reasonUnless(!slices.ContainsFunc(f.works, func(w v1alpha1.Work) bool {
		return w.Name == s.workState.name && clusterOf(&w) == s.workState.cluster
	}), "its Work is there")
}

// trafficMerged: no cluster refuses EndpointSlices, and each gets what the others report, unless it is withdrawn.
func trafficMerged(f *snapshot, s *reportedCondition) string {
	works := map[string]*v1alpha1.Work{}
	for i := range f.works {
		if w := &f.works[i]; w.Name == s.assignment.Name && w.Spec.Traffic != nil && w.Spec.Removal == nil && w.Status.Traffic != nil && w.Status.Traffic.Revision > 0 {
			works[clusterOf(w)] = w
		}
	}
	for to, w := range works {
		if w.Status.Traffic.Message != "" {
			return to + " reports " + w.Status.Traffic.Message
		}
		for from, other := range works {
			for _, e := range other.Status.Traffic.Endpoints {
				got := slices.ContainsFunc(w.Spec.Traffic.Endpoints, func(x v1alpha1.TrafficEndpoints) bool {
					return string(x.Cluster) == from && x.Work == e.Work && slices.Equal(x.Addresses, e.Addresses)
				})
				leaves := slices.ContainsFunc(w.Spec.Traffic.Withdrawn, func(x v1alpha1.WithdrawnTraffic) bool { return string(x.Cluster) == from && x.Work == e.Work })
				if to != from && got == leaves {
					return fmt.Sprintf("%s has endpoints %v, and %s reports %v (withdrawn: %t)", to, w.Spec.Traffic.Endpoints, from, e, leaves)
				}
			}
		}
	}
	return ""
}

// trafficRefused: a cluster reports why.
func trafficRefused(f *snapshot, s *reportedCondition) string {
	refused := slices.ContainsFunc(f.works, func(w v1alpha1.Work) bool {
		return w.Name == s.assignment.Name && w.Status.Traffic != nil && w.Status.Traffic.Message != ""
	})
	return reasonUnless(refused, "no cluster reports why")
}
