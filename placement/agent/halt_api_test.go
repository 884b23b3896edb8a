// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package agent_test

import (
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// signed gives a Work's spec a position in the hub's history.
func signed(hub types.UID, term, revision int64, history ...v1alpha1.WorkPosition) func(*v1alpha1.WorkSpec) {
	return func(s *v1alpha1.WorkSpec) {
		s.HubUID, s.Epoch, s.Term, s.Revision, s.History = hub, "epoch of "+string(hub), term, revision, history
	}
}

// made makes a ConfigMap by a Work at a position, and waits until the cluster has it.
func (b *bench) made(t *testing.T, name string, sign func(*v1alpha1.WorkSpec)) *v1alpha1.Work {
	t.Helper()
	w := b.work(t, name, sign, manifest(t, "configmaps", configMap(name, "v")))
	b.awaitWork(t, w, "applied", applied(w.Spec.Revision))
	return w
}

// restore puts a Work into the state of an older hub, or of another one.
func (b *bench) restore(t *testing.T, w *v1alpha1.Work, value string, sign func(*v1alpha1.WorkSpec)) {
	t.Helper()
	b.change(t, w, func(s *v1alpha1.WorkSpec) {
		s.Manifests = []v1alpha1.Manifest{manifest(t, "configmaps", configMap(w.Name, value))}
		sign(s)
	})
}

// answer answers a halted Work, as kubectl patchbay hub resume does.
func (b *bench) answer(t *testing.T, w *v1alpha1.Work, take string) {
	t.Helper()
	s := b.awaitWork(t, w, "it is halted", func(s v1alpha1.WorkStatus) bool { return s.Halted != nil && s.Halted.Record != "" })
	patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`,
		v1alpha1.ResumeAnnotation, take+":"+s.Halted.Record))
	if err := b.Patch(t.Context(), w, patch); err != nil {
		t.Fatal(err)
	}
}

// value waits until a ConfigMap has a value, and returns its UID.
func (b *bench) value(t *testing.T, name, want string) types.UID {
	t.Helper()
	var uid types.UID
	eventually(t, fmt.Sprintf("ConfigMap %s has %q", name, want), func() error {
		o := b.object(t, "v1", "ConfigMap", "default", name)
		if got := field(o, "data", "key"); got != want {
			return fmt.Errorf("got %q", got)
		}
		uid = o.GetUID()
		return nil
	})
	return uid
}

// (Safety 4) A Work of an earlier state of the hub, of one that counted past it after a
// restore, or of another hub stands still, and its object is repaired. The others go on, but
// nothing is removed, and nothing begun that there is no record of. An answer lets it go on.
func TestAgentHaltsWorksThatDoNotFit(t *testing.T) {
	b := start(t)
	cases := map[string]struct {
		reason string
		sign   func(*v1alpha1.WorkSpec)
		part   string
	}{
		"older":     {"The hub was restored.", signed("hub-1", 5, 7), "of term 5, revision 7"},
		"overtaken": {"Edits after the restore have overtaken the record.", signed("hub-1", 6, 20, v1alpha1.WorkPosition{Term: 5, Revision: 7}), "of term 6, revision 20"},
		"other":     {"The hub was made again.", signed("hub-2", 6, 1), "of hub hub-2"},
	}
	good := b.made(t, "good", signed("hub-1", 5, 10))
	leaving := b.made(t, "leaving", signed("hub-1", 5, 10))
	outer := t
	for name, tc := range cases {
		for _, take := range []string{v1alpha1.TakeHub, v1alpha1.TakeCluster} {
			t.Run(name+"/"+take, func(t *testing.T) {
				name := name + "-" + take
				w := b.made(t, name, signed("hub-1", 5, 10))
				uid := b.value(t, name, "v")
				b.restore(t, w, "restored", tc.sign)
				s := b.awaitWork(t, w, tc.reason, failed(v1alpha1.ConditionHubMismatch, tc.part))
				want := "ConfigMap default/" + name + `: data.key: "v" in the cluster, "restored" at the hub`
				if s.Halted == nil || s.Halted.Record != "hub-1/epoch of hub-1/5/10" || len(s.Halted.Differences) != 1 || s.Halted.Differences[0] != want {
					t.Errorf("%s\nhalted: got %+v, want the record and %q", tc.reason, s.Halted, want)
				}
				if err := b.condition(t, name, v1alpha1.ConditionHubMismatch); err != nil {
					t.Error(err)
				}
				if err := b.Delete(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}); err != nil {
					t.Fatal(err)
				}
				uid2 := b.value(t, name, "v") // it is repaired
				if uid == uid2 {
					t.Fatal("the object was not deleted")
				}
				b.change(t, good, func(s *v1alpha1.WorkSpec) { s.SourceGeneration++ })
				b.awaitWork(t, good, "others go on", applied(good.Spec.Revision))
				early := b.work(t, "new-"+name, signed("hub-1", 5, 1), manifest(t, "configmaps", configMap("new-"+name, "v")))
				b.awaitWork(t, early, "it is not begun", failed(v1alpha1.ConditionHubMismatch, "it is not begun while Work "+name))
				b.stop() // an agent that starts knows it, too
				b.run(outer)
				b.answer(t, w, take)
				b.awaitWork(t, w, "it goes on", applied(w.Spec.Revision))
				b.awaitWork(t, early, "so does the other", applied(1))
				kept := map[string]string{v1alpha1.TakeHub: "restored", v1alpha1.TakeCluster: "v"}[take]
				if got := b.value(t, name, kept); got != uid2 {
					t.Errorf("UID: got %s, want %s: the object stays the same", got, uid2)
				}
				b.restore(t, w, "next", func(*v1alpha1.WorkSpec) {}) // the next revision of the same hub
				b.awaitWork(t, w, "the next change is applied", applied(w.Spec.Revision))
				b.value(t, name, "next")
			})
		}
	}
	t.Run("removals wait", func(t *testing.T) {
		w := b.made(t, "holds", signed("hub-1", 5, 10))
		b.restore(t, w, "restored", signed("hub-1", 5, 7))
		b.awaitWork(t, w, "it is halted", failed(v1alpha1.ConditionHubMismatch, ""))
		b.change(t, leaving, func(s *v1alpha1.WorkSpec) {
			s.Removal = &v1alpha1.Removal{Policy: v1alpha1.OnDeleteDelete, SourceUID: "source-1"}
		})
		b.awaitWork(t, leaving, "the order waits", failed(v1alpha1.ConditionHubMismatch, "nothing is removed while Work holds"))
		b.value(t, "leaving", "v")
		b.answer(t, w, v1alpha1.TakeCluster)
		b.awaitWork(t, leaving, "it is carried out", failed(v1alpha1.ReasonOrdered, ""))
	})
}

// (Safety 4) A hub that was made again takes over what its predecessor placed, in namespaces
// that the agent made, too: nothing is deleted or made again.
func TestAgentServesANewHub(t *testing.T) {
	b := start(t)
	text := `{apiVersion: v1, kind: ConfigMap, metadata: {name: web, namespace: made}, data: {key: v}}`
	w := b.work(t, "web", signed("hub-1", 5, 10), manifest(t, "configmaps", text))
	b.awaitWork(t, w, "applied", applied(10))
	uid := b.object(t, "v1", "ConfigMap", "made", "web").GetUID()
	b.change(t, w, func(s *v1alpha1.WorkSpec) {
		signed("hub-2", 9, 1)(s)
		s.Source.UID = "source-2"
	})
	b.answer(t, w, v1alpha1.TakeHub)
	b.awaitWork(t, w, "applied for the new hub", applied(1))
	o := b.object(t, "v1", "ConfigMap", "made", "web")
	if o.GetUID() != uid || o.GetAnnotations()[v1alpha1.HubUIDAnnotation] != "hub-2" || o.GetAnnotations()[v1alpha1.SourceUIDAnnotation] != "source-2" {
		t.Errorf("object: got UID %s, annotations %v, want %s with the new hub's marks", o.GetUID(), o.GetAnnotations(), uid)
	}
	if ns := b.object(t, "v1", "Namespace", "", "made"); ns.GetAnnotations()[v1alpha1.HubUIDAnnotation] != "hub-2" {
		t.Errorf("namespace: got annotations %v, want it handed over", ns.GetAnnotations())
	}
}

// (Safety 5) An order without a record removes what is known to be its object, and nothing
// else. It is not reported done while the object may be there.
func TestAgentRemovesWithoutRecords(t *testing.T) {
	b := start(t)
	cases := map[string]struct {
		reason   string
		uid      string // "": not reported, "live": the object's
		unmarked bool   // the object has lost what marks it as ours
		want     string // the reason that is reported
		stays    bool
	}{
		"known":           {"The hub was told of this very object.", "live", false, v1alpha1.ReasonOrdered, false},
		"known, unmarked": {"Whoever took the marks off did not make another object of it.", "live", true, v1alpha1.ReasonOrdered, false},
		"marked":          {"It was made for this order's source.", "", false, v1alpha1.ReasonOrdered, false},
		"not known":       {"It is not ours.", "", true, v1alpha1.ReasonOrdered, true},
		"another":         {"It is marked, and is not the one that the hub knows.", "x", false, v1alpha1.ReasonRecordLost, true},
	}
	outer, i := t, 0
	for name, tc := range cases {
		object := fmt.Sprint("lost-", i)
		i++
		t.Run(name, func(t *testing.T) {
			w := b.made(t, object, signed("hub-1", 5, 10))
			live := b.value(t, object, "v")
			b.stop()
			if err := b.Delete(t.Context(), &v1alpha1.AppliedWork{ObjectMeta: metav1.ObjectMeta{Name: object}}); err != nil {
				t.Fatal(err)
			}
			if tc.unmarked {
				patch := fmt.Appendf(nil, `{"metadata":{"labels":null,"annotations":null}}`)
				if err := b.Patch(t.Context(), b.object(t, "v1", "ConfigMap", "default", object), client.RawPatch("application/merge-patch+json", patch)); err != nil {
					t.Fatal(err)
				}
			}
			b.change(t, w, func(s *v1alpha1.WorkSpec) {
				uid := types.UID(tc.uid)
				if tc.uid == "live" {
					uid = live
				}
				s.Removal = &v1alpha1.Removal{Policy: v1alpha1.OnDeleteDelete, SourceUID: "source-1", UIDs: []types.UID{uid}}
			})
			b.run(outer)
			b.awaitWork(t, w, tc.reason, failed(tc.want, ""))
			if got := b.object(t, "v1", "ConfigMap", "default", object) != nil; got != tc.stays {
				t.Errorf("%s\nthe object is there: got %t, want %t", tc.reason, got, tc.stays)
			}
			if tc.want == v1alpha1.ReasonRecordLost { // a person decides
				if err := b.Delete(t.Context(), b.object(t, "v1", "ConfigMap", "default", object)); err != nil {
					t.Fatal(err)
				}
				b.awaitWork(t, w, "it is done then", failed(v1alpha1.ReasonOrdered, ""))
			}
		})
	}
}

// (Safety 5) A removal that a finalizer holds, and one that the API server refuses, are
// reported, and done when they are.
func TestAgentReportsHeldRemovals(t *testing.T) {
	b := start(t)
	w := b.made(t, "held", signed("hub-1", 5, 10))
	finalizers := func(list string) {
		t.Helper()
		patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":`+list+`}}`))
		if err := b.Patch(t.Context(), b.object(t, "v1", "ConfigMap", "default", "held"), patch); err != nil {
			t.Fatal(err)
		}
	}
	finalizers(`["example.com/held"]`)
	b.change(t, w, func(s *v1alpha1.WorkSpec) {
		s.Removal = &v1alpha1.Removal{Policy: v1alpha1.OnDeleteDelete, SourceUID: "source-1"}
	})
	b.awaitWork(t, w, "it says what holds it", failed(v1alpha1.ReasonRemovalBlocked, "configmaps default/held: it is being deleted, and its finalizers hold it: example.com/held"))
	finalizers("null")
	b.awaitWork(t, w, "it is done", failed(v1alpha1.ReasonOrdered, ""))

	refused := b.made(t, "refused", signed("hub-1", 5, 10))
	b.allow(t, metav1.NamespaceDefault, "none") // the admin closes the namespace: admission refuses
	b.change(t, refused, func(s *v1alpha1.WorkSpec) {
		s.Removal = &v1alpha1.Removal{Policy: v1alpha1.OnDeleteDelete, SourceUID: "source-1"}
	})
	b.awaitWork(t, refused, "it says who refuses", failed(v1alpha1.ReasonRefused, "the agent of a hub may not write in namespace default"))
	b.allow(t, metav1.NamespaceDefault, v1alpha1.AccessCreate)
	b.awaitWork(t, refused, "it is done", failed(v1alpha1.ReasonOrdered, ""))
}

// An agent that starts with an order in its record hears the hub first: the order may have been
// taken back.
func TestAgentStartsWithAnOrder(t *testing.T) {
	b := start(t)
	w := b.made(t, "taken-back", signed("hub-1", 5, 10))
	b.stop()
	rec := &v1alpha1.AppliedWork{}
	if err := b.Get(t.Context(), client.ObjectKey{Name: w.Name}, rec); err != nil {
		t.Fatal(err)
	}
	rec.Spec.Work.Revision++
	rec.Spec.Work.Removal = &v1alpha1.Removal{Policy: v1alpha1.OnDeleteDelete, SourceUID: "source-1"}
	b.change(t, w, func(s *v1alpha1.WorkSpec) { s.Revision += 2 })
	if err := errors.Join(b.Update(t.Context(), rec)); err != nil {
		t.Fatal(err)
	}
	uid := b.value(t, w.Name, "v")
	b.run(t)
	b.awaitWork(t, w, "the later revision is applied", applied(w.Spec.Revision))
	if got := b.value(t, w.Name, "v"); got != uid {
		t.Errorf("UID: got %s, want %s: the object was removed and made again", got, uid)
	}
}
