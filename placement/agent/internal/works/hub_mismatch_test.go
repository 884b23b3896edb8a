// SPDX-License-Identifier: Apache-2.0

package works

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/agent/internal/records"
)

// specAt returns a spec at a position, with manifests.
func specAt(hub types.UID, epoch string, term, revision int64, manifests ...string) v1alpha1.WorkSpec {
	s := v1alpha1.WorkSpec{HubUID: hub, Epoch: epoch, Term: term, Revision: revision}
	for _, text := range manifests {
		s.Manifests = append(s.Manifests, v1alpha1.Manifest{Resource: "configmaps", Object: runtime.RawExtension{Raw: []byte(text)}})
	}
	return s
}

func TestMatchesRecord(t *testing.T) {
	t.Parallel()
	history := func(s v1alpha1.WorkSpec, h ...v1alpha1.WorkPosition) v1alpha1.WorkSpec {
		s.History = h
		return s
	}
	const one, other = `{"a":1,"b":2}`, `{"a":2}`
	record := specAt("hub", "e", 5, 10, one)
	upgraded, removing, replaced := record, record, record
	upgraded.PodSecurity = map[string]v1alpha1.PodSecurityLevel{"enforce": v1alpha1.PodSecurityBaseline}
	removing.Removal = &v1alpha1.Removal{Policy: v1alpha1.OnDeleteDelete}
	replaced.Source.UID = "another"
	for name, tc := range map[string]struct {
		reason string
		work   v1alpha1.WorkSpec
		want   bool
	}{
		"same":         {"The content is the same, in another order.", specAt("hub", "e", 5, 10, `{"b":2,"a":1}`), true},
		"rewritten":    {"One position has one content.", specAt("hub", "e", 5, 10, other), false},
		"ordered":      {"One position has one order.", removing, false},
		"replaced":     {"One position has one source.", replaced, false},
		"upgraded":     {"An older agent did not know a field, and recorded the Work without it.", upgraded, true},
		"next":         {"The same leader has changed the Work.", specAt("hub", "e", 5, 11, other), true},
		"older":        {"The hub forgot three changes.", specAt("hub", "e", 5, 7, one), false},
		"next leader":  {"The next leader knew the recorded state.", history(specAt("hub", "e", 6, 11, other), v1alpha1.WorkPosition{Term: 5, Revision: 10}), true},
		"knew of more": {"The agent missed changes while it was not running.", history(specAt("hub", "e", 6, 15, other), v1alpha1.WorkPosition{Term: 5, Revision: 14}), true},
		"overtaken":    {"A restored hub has counted past the recorded revision.", history(specAt("hub", "e", 6, 15, other), v1alpha1.WorkPosition{Term: 5, Revision: 7}), false},
		"later leaders": {
			"Several leaders of a restored hub do not change that.",
			history(specAt("hub", "e", 9, 40, other), v1alpha1.WorkPosition{Term: 5, Revision: 7}, v1alpha1.WorkPosition{Term: 6, Revision: 30}), false,
		},
		"forgotten":   {"The restored hub does not know of the term.", history(specAt("hub", "e", 9, 40, other), v1alpha1.WorkPosition{Term: 4, Revision: 39}), false},
		"earlier":     {"A leader from before the restore is back.", specAt("hub", "e", 4, 50, other), false},
		"other epoch": {"The hub was uninstalled and installed.", specAt("hub", "f", 6, 11, other), false},
		"other hub":   {"It is another hub.", specAt("other", "e", 6, 11, other), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := matchesRecord(&v1alpha1.Work{Spec: tc.work}, &v1alpha1.AppliedWork{Spec: v1alpha1.AppliedWorkSpec{Work: record}}); got != tc.want {
				t.Errorf("%s\nmatches: got %t, want %t", tc.reason, got, tc.want)
			}
		})
	}
	if !isSpecChanged(&v1alpha1.Work{Spec: upgraded}, &v1alpha1.AppliedWork{Spec: v1alpha1.AppliedWorkSpec{Work: record}}) {
		t.Error("the record must get the field that it lacks")
	}
	before := &v1alpha1.AppliedWork{Spec: v1alpha1.AppliedWorkSpec{Work: specAt("hub", "", 0, 10, one)}}
	for revision, want := range map[int64]bool{9: false, 11: true} {
		if got := matchesRecord(&v1alpha1.Work{Spec: specAt("hub", "e", 5, revision, other)}, before); got != want {
			t.Errorf("record without a term, revision %d: got %t, want %t", revision, got, want)
		}
	}
}

func TestResumedSpec(t *testing.T) {
	t.Parallel()
	rec := &v1alpha1.AppliedWork{Spec: v1alpha1.AppliedWorkSpec{Work: specAt("hub", "e", 5, 10, `{"ofCluster":true}`)}}
	rec.Spec.Work.SourceGeneration = 4
	work := &v1alpha1.Work{Spec: specAt("other", "f", 9, 3, `{"ofCluster":false}`)}
	work.Spec.Removal = &v1alpha1.Removal{Policy: v1alpha1.OnDeleteDelete}
	for text, want := range map[string]string{
		"hub:hub/e/5/10:other/f/9/3": v1alpha1.TakeHub, "cluster:hub/e/5/10:other/f/9/3": v1alpha1.TakeCluster,
		"hub:hub/e/5/9:other/f/9/3": "", "hub:hub/e/5/10:other/f/9/2": "", "cluster:hub/e/5/10:other/f/9/2": "", // of other states
		"other:hub/e/5/10:other/f/9/3": "", "hub:hub/e/5/10": "", "hub": "", "": "",
	} {
		work.Annotations = map[string]string{v1alpha1.ResumeAnnotation: text}
		if got := resumeAnswer(work, rec); got != want {
			t.Errorf("answer %q: got %q, want %q", text, got, want)
		}
	}
	if got := resumedSpec(v1alpha1.TakeHub, work, rec); !equalAsJSON(got, work.Spec) {
		t.Errorf("take the hub's: got %+v, want the spec of the Work", got)
	}
	got := resumedSpec(v1alpha1.TakeCluster, work, rec)
	if got.Position() != work.Spec.Position() || string(got.Manifests[0].Object.Raw) != `{"ofCluster":true}` || got.Removal != nil || got.SourceGeneration != 4 {
		t.Errorf("take the cluster's: got %+v, want the record's manifests at the Work's position, and no removal", got)
	}
	rec.Spec.Work = got
	metav1.SetMetaDataAnnotation(&rec.ObjectMeta, v1alpha1.ResumeAnnotation, v1alpha1.TakeCluster+":"+got.Position())
	if !matchesRecord(work, rec) || isSpecChanged(work, rec) || isRemovalRequested(work, rec) {
		t.Error("the answered Work must match, change nothing, and order nothing")
	}
	work.Spec.Revision++
	if !matchesRecord(work, rec) || !isSpecChanged(work, rec) || !isRemovalRequested(work, rec) {
		t.Error("the record must get the next change of the hub")
	}
}

func TestDifferences(t *testing.T) {
	t.Parallel()
	const head = `{"kind":"Deployment","metadata":{"name":"web","namespace":"shop"},"spec":`
	record := specAt("hub", "e", 5, 10, head+`{"replicas":3,"paused":true,"template":{"image":"b"}}}`)
	work := specAt("hub", "e", 5, 7, head+`{"replicas":2,"template":{"image":"`+strings.Repeat("a", 100)+`"}}}`)
	want := []string{
		"Deployment shop/web: spec.paused: true in the cluster, nothing at the hub",
		"Deployment shop/web: spec.replicas: 3 in the cluster, 2 at the hub",
		`Deployment shop/web: spec.template.image: "b" in the cluster, another value at the hub`,
	}
	if diff := cmp.Diff(want, manifestDifferences(&work, &record)); diff != "" {
		t.Errorf("differences: -want +got\n%s", diff)
	}
	work.Source = v1alpha1.ObjectReference{Kind: "Deployment", Namespace: "shop", Name: "web"}
	work.Removal = &v1alpha1.Removal{}
	if diff := cmp.Diff([]string{"Deployment shop/web: would be removed"}, manifestDifferences(&work, &record)); diff != "" {
		t.Errorf("removal: -want +got\n%s", diff)
	}
}

// No report has values of a Secret, even if a manifest has them.
func TestDifferencesHideSecrets(t *testing.T) {
	t.Parallel()
	secret := func(value string) string {
		return `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"db","namespace":"shop"},"stringData":{"password":"` + value + `"}}`
	}
	record, work := specAt("hub", "e", 5, 10, secret("hunter2")), specAt("hub", "e", 5, 7, secret("hunter1"))
	want := []string{"Secret shop/db: stringData.password: another value at the hub"}
	if diff := cmp.Diff(want, manifestDifferences(&work, &record)); diff != "" {
		t.Errorf("differences: -want +got\n%s", diff)
	}
}

// fakeWorkCache is a cache that lists Works.
type fakeWorkCache struct {
	cache.Cache
	works []v1alpha1.Work
}

func (l fakeWorkCache) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	works, ok := list.(*v1alpha1.WorkList)
	if !ok {
		return errors.New("not a list of Works")
	}
	works.Items = l.works
	return nil
}

func newTestRecords(t *testing.T, stored ...client.Object) *records.Store {
	t.Helper()
	scheme, _, err := schemeAndMapper()
	if err != nil {
		t.Fatal(err)
	}
	r := records.New(fake.NewClientBuilder().WithScheme(scheme).WithObjects(stored...).Build())
	if err := r.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	return r
}

// Before a removal the agent compares all Works, also those whose events it has not handled.
func TestAnyHalted(t *testing.T) {
	t.Parallel()
	var stored []client.Object
	var works []v1alpha1.Work
	for _, name := range []string{"a", "b", "c"} {
		stored = append(stored, &v1alpha1.AppliedWork{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.AppliedWorkSpec{Work: specAt("hub", "e", 5, 10)}})
		works = append(works, v1alpha1.Work{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: specAt("hub", "e", 5, 10)})
	}
	works = append(works, v1alpha1.Work{ObjectMeta: metav1.ObjectMeta{Name: "new"}, Spec: specAt("hub", "e", 5, 1)})
	h := newHaltedWorks(&hubClient{cache: fakeWorkCache{works: works}}, newTestRecords(t, stored...))
	if got := h.any(t.Context()); got != "" {
		t.Errorf("all match: got %q", got)
	}
	works[2].Spec.Revision = 9
	if got := h.any(t.Context()); got != "c" {
		t.Errorf("c is older than its record: got %q", got)
	}
	h.set("b", true)
	if got := h.any(t.Context()); got != "b" {
		t.Errorf("b is halted: got %q", got)
	}
}

// Before the agent has read all Works, a missing Work does not count as one that matches, and the agent
// carries out no order.
func TestReconcileBeforeTheCacheIsSynced(t *testing.T) {
	t.Parallel()
	rec := &v1alpha1.AppliedWork{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: v1alpha1.AppliedWorkSpec{Work: specAt("hub", "e", 5, 10)}}
	rec.Spec.Work.Removal = &v1alpha1.Removal{Policy: v1alpha1.OnDeleteDelete}
	r := newTestRecords(t, rec)
	hub := &hubClient{} // any request would panic
	w := &workReconciler{halted: newHaltedWorks(hub, r), records: r, hub: hub}
	w.halted.set("a", true)
	w.remover = &workRemover{hub: hub, records: r, halted: w.halted}
	if later, err := w.reconcile(t.Context(), "a"); later != 0 || err != nil {
		t.Errorf("got %s, %v, want to wait for the cache", later, err)
	}
	if name, _ := w.halted.first(); name != "a" {
		t.Error("a is no longer halted")
	}
}

// An order's UIDs are for objects whose UID the record lacks.
func TestObjectsToRemove(t *testing.T) {
	t.Parallel()
	manifests := []string{configMapJSON("a"), configMapJSON("b"), configMapJSON("c")}
	rec := &v1alpha1.AppliedWork{Spec: v1alpha1.AppliedWorkSpec{Work: specAt("hub", "e", 5, 10, manifests...)}}
	rec.Spec.Work.Removal = &v1alpha1.Removal{UIDs: []types.UID{"reported-a", "reported-b"}}
	rec.Status.Objects = []v1alpha1.AppliedObject{{Version: "v1", Resource: "configmaps", Kind: "ConfigMap", Namespace: "n", Name: "a", UID: "recorded-a"}}
	var got []types.UID
	for _, o := range objectsToRemove(rec) {
		got = append(got, o.UID)
	}
	if diff := cmp.Diff([]types.UID{"recorded-a", "reported-b", ""}, got); diff != "" {
		t.Errorf("UIDs: -want +got\n%s", diff)
	}
	if len(rec.Status.Objects) != 1 {
		t.Errorf("record: got %+v, want it unchanged", rec.Status.Objects)
	}
}

func configMapJSON(name string) string {
	return `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"n","name":"` + name + `"}}`
}

func TestHaltedWorks(t *testing.T) {
	t.Parallel()
	h := newHaltedWorks(nil, nil)
	for i, s := range []struct {
		work            string
		halted, changed bool
		first           string
		all             int
	}{
		{"b", false, false, "", 0}, {"b", true, true, "b", 1}, {"a", true, false, "a", 2}, {"a", false, false, "b", 1}, {"b", false, true, "", 0},
	} {
		got := h.set(s.work, s.halted)
		if first, all := h.first(); got != s.changed || first != s.first || all != s.all {
			t.Errorf("step %d: got changed %t, first %q of %d; want %t, %q of %d", i, got, first, all, s.changed, s.first, s.all)
		}
	}
}
