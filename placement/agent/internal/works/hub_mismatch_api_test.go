// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package works_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/test/placement/bed"
)

// atPosition sets the position of a Work's spec in the hub's history.
func atPosition(hub types.UID, term, revision int64, history ...v1alpha1.WorkPosition) func(*v1alpha1.WorkSpec) {
	return func(s *v1alpha1.WorkSpec) {
		s.HubUID, s.Epoch, s.Term, s.Revision, s.History = hub, "epoch of "+string(hub), term, revision, history
	}
}

// place places a ConfigMap with a Work at a position, and waits until the cluster has it.
func (b *testAgent) place(t *testing.T, name string, sign func(*v1alpha1.WorkSpec)) *v1alpha1.Work {
	t.Helper()
	w := b.work(t, name, sign, manifest(t, "configmaps", configMap(name, "v")))
	b.awaitWork(t, w, "applied", applied(w.Spec.Revision))
	return w
}

// restore changes a Work to the state of a restored hub, or of another one.
func (b *testAgent) restore(t *testing.T, w *v1alpha1.Work, value string, sign func(*v1alpha1.WorkSpec)) {
	t.Helper()
	b.change(t, w, func(s *v1alpha1.WorkSpec) {
		s.Manifests = []v1alpha1.Manifest{manifest(t, "configmaps", configMap(w.Name, value))}
		sign(s)
	})
}

// answer answers a halted Work, as kubectl patchbay hub resume does.
func (b *testAgent) answer(t *testing.T, w *v1alpha1.Work, take string) {
	t.Helper()
	s := b.awaitWork(t, w, "the Work is halted", func(s v1alpha1.WorkStatus) bool { return s.Halted != nil && s.Halted.Work == w.Spec.Position() })
	patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`,
		v1alpha1.ResumeAnnotation, v1alpha1.ResumeAnswer(take, s.Halted.Record, w.Spec.Position())))
	if err := b.Patch(t.Context(), w, patch); err != nil {
		t.Fatal(err)
	}
}

// value waits until a ConfigMap has a value, and returns its UID.
func (b *testAgent) value(t *testing.T, name, want string) types.UID {
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

// (Safety 4) The agent halts a Work of an earlier state of the hub, of a restored hub with greater revisions, or of
// another hub, and repairs its object. It applies other Works, but removes nothing, and begins no Work without a
// record. An answer resumes the Work.
func TestAgentHaltsMismatchedWorks(t *testing.T) {
	t.Parallel()
	b := start(t)
	cases := map[string]struct {
		reason string
		sign   func(*v1alpha1.WorkSpec)
		part   string
	}{
		"older":     {"The hub was restored.", atPosition("hub-1", 5, 7), "term 5, revision 7"},
		"overtaken": {"Changes after the restore have greater revisions than the record.", atPosition("hub-1", 6, 20, v1alpha1.WorkPosition{Term: 5, Revision: 7}), "term 6, revision 20"},
		"rewritten": {"One position has one content.", atPosition("hub-1", 5, 10), "with other content"},
		"other":     {"The hub was installed again.", atPosition("hub-2", 6, 1), "of hub hub-2"},
		"equal":     {"Another hub has the same revision by chance.", atPosition("hub-2", 6, 10), "of hub hub-2"},
	}
	good := b.place(t, "good", atPosition("hub-1", 5, 10))
	leaving := b.place(t, "leaving", atPosition("hub-1", 5, 10))
	outer := t
	for name, tc := range cases {
		for _, take := range []string{v1alpha1.TakeHub, v1alpha1.TakeCluster} {
			t.Run(name+"/"+take, func(t *testing.T) {
				name := name + "-" + take
				w := b.place(t, name, atPosition("hub-1", 5, 10))
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
				uid2 := b.value(t, name, "v") // the agent repairs it
				if uid == uid2 {
					t.Fatal("the object was not deleted")
				}
				b.change(t, good, func(s *v1alpha1.WorkSpec) { s.SourceGeneration++ })
				b.awaitWork(t, good, "other Works are applied", applied(good.Spec.Revision))
				early := b.work(t, "new-"+name, atPosition("hub-1", 5, 1), manifest(t, "configmaps", configMap("new-"+name, "v")))
				b.awaitWork(t, early, "the new Work waits", failed(v1alpha1.ConditionHubMismatch, "new objects wait: Work "+name))
				b.stop() // also after a restart of the agent
				b.run(outer)
				b.answer(t, w, take)
				b.awaitWork(t, w, "the Work is resumed", applied(w.Spec.Revision))
				b.awaitWork(t, early, "the new Work is applied", applied(1))
				kept := map[string]string{v1alpha1.TakeHub: "restored", v1alpha1.TakeCluster: "v"}[take]
				if got := b.value(t, name, kept); got != uid2 {
					t.Errorf("UID: got %s, want %s of the same object", got, uid2)
				}
				b.restore(t, w, "next", func(*v1alpha1.WorkSpec) {}) // the next revision of the same hub
				b.awaitWork(t, w, "the next change is applied", applied(w.Spec.Revision))
				b.value(t, name, "next")
			})
		}
	}
	t.Run("removals wait", func(t *testing.T) {
		w := b.place(t, "holds", atPosition("hub-1", 5, 10))
		b.restore(t, w, "restored", atPosition("hub-1", 5, 7))
		b.awaitWork(t, w, "the Work is halted", failed(v1alpha1.ConditionHubMismatch, ""))
		b.change(t, leaving, func(s *v1alpha1.WorkSpec) {
			s.Removal = &v1alpha1.Removal{Policy: v1alpha1.OnDeleteDelete, SourceUID: "source-1"}
		})
		b.awaitWork(t, leaving, "the order waits", failed(v1alpha1.ConditionHubMismatch, "removals wait: Work holds"))
		b.value(t, "leaving", "v")
		b.answer(t, w, v1alpha1.TakeCluster)
		b.awaitWork(t, leaving, "the order is carried out", failed(v1alpha1.ReasonRemoved, ""))
	})
}

// (Safety 4) A hub that was installed again takes over the objects of its predecessor, also in namespaces that the
// agent created. The agent deletes and recreates nothing.
func TestAgentJoinsANewHub(t *testing.T) {
	t.Parallel()
	b := start(t)
	text := `{apiVersion: v1, kind: ConfigMap, metadata: {name: web, namespace: made}, data: {key: v}}`
	w := b.work(t, "web", atPosition("hub-1", 5, 10), manifest(t, "configmaps", text))
	b.awaitWork(t, w, "applied", applied(10))
	uid := b.object(t, "v1", "ConfigMap", "made", "web").GetUID()
	b.change(t, w, func(s *v1alpha1.WorkSpec) {
		atPosition("hub-2", 9, 1)(s)
		s.Source.UID = "source-2"
	})
	b.answer(t, w, v1alpha1.TakeHub)
	b.awaitWork(t, w, "applied for the new hub", applied(1))
	o := b.object(t, "v1", "ConfigMap", "made", "web")
	if o.GetUID() != uid || o.GetAnnotations()[v1alpha1.HubUIDAnnotation] != "hub-2" || o.GetAnnotations()[v1alpha1.SourceUIDAnnotation] != "source-2" {
		t.Errorf("object: got UID %s, annotations %v, want %s with the new hub's marks", o.GetUID(), o.GetAnnotations(), uid)
	}
	if ns := b.object(t, "v1", "Namespace", "", "made"); ns.GetAnnotations()[v1alpha1.HubUIDAnnotation] != "hub-2" {
		t.Errorf("namespace: got annotations %v, want the new hub", ns.GetAnnotations())
	}
}

// Patches of the label, annotations and managed fields of the agent's objects.
const (
	unmarked   = `{"metadata":{"labels":null,"annotations":null}}`
	unlabelled = `{"metadata":{"labels":null}}`
	labelOnly  = `{"metadata":{"annotations":null,"managedFields":[{}]}}`
	sourceless = `{"metadata":{"annotations":{"` + v1alpha1.SourceUIDAnnotation + `":null}}}`
	untouched  = `{"metadata":{"labels":null,"annotations":null,"managedFields":[{}]}}` // as an object that was never the agent's
	kept       = `{"metadata":{"labels":{"` + v1alpha1.ManagedLabel + `":"false"}}}`
)

// (Safety 5) An order without a record removes only an object with the agent's marks and the UID of the order. The
// agent does not report it as done while the object may exist.
func TestAgentRemovesWithoutRecords(t *testing.T) {
	t.Parallel()
	b := start(t)
	const del, orphan = v1alpha1.OnDeleteDelete, v1alpha1.OnDeleteOrphan
	cases := map[string]struct {
		reason string
		policy v1alpha1.OnDelete
		uid    string // "": not reported, "live": the object's
		marks  string // a patch of the agent's marks
		want   string // the reported reason
		part   string // of the message
		stays  bool
	}{
		"known":                {"The UID of the object was reported.", del, "live", "", v1alpha1.ReasonRemoved, "", false},
		"known, unmarked":      {"A user has removed the marks, and the object exists.", del, "live", unmarked, v1alpha1.ReasonRecordLost, "has the UID of the order, and not the label", true},
		"known, unlabelled":    {"A user has removed the label, and the object exists.", del, "live", unlabelled, v1alpha1.ReasonRecordLost, "has the UID of the order, and not the label", true},
		"known, untouched":     {"The object was reported, and has no marks.", del, "live", untouched, v1alpha1.ReasonRecordLost, "has the UID of the order, and not the label", true},
		"known, kept":          {"A user keeps the object.", del, "live", kept, v1alpha1.ReasonRemoved, "", true},
		"orphaned":             {"The object is released.", orphan, "live", "", v1alpha1.ReasonRemoved, "", true},
		"orphaned, unmarked":   {"The object has no marks to remove.", orphan, "live", unmarked, v1alpha1.ReasonRemoved, "", true},
		"marked":               {"The object has the marks of the order's source.", del, "", "", v1alpha1.ReasonRemoved, "", false},
		"not known":            {"The object is not the agent's.", del, "", untouched, v1alpha1.ReasonRemoved, "", true},
		"not known, our field": {"The object has fields of the agent.", del, "", unmarked, v1alpha1.ReasonRecordLost, "and the order has no UID", true},
		"not known, our label": {"The object has the agent's label.", del, "", labelOnly, v1alpha1.ReasonRecordLost, "and the order has no UID", true},
		"replaced":             {"The reported object is gone, and this one is not the agent's.", del, "x", untouched, v1alpha1.ReasonRemoved, "", true},
		"replaced, our field":  {"The reported object is gone, and this one has fields of the agent.", del, "x", unmarked, v1alpha1.ReasonRecordLost, "and the order is for UID x", true},
		"another":              {"The object has the marks, and another UID than the reported one.", del, "x", "", v1alpha1.ReasonRecordLost, "and the order is for UID x", true},
		"half marked":          {"The object has the mark of the hub, and none of a source.", del, "", sourceless, v1alpha1.ReasonRecordLost, "and the order has no UID", true},
	}
	outer, i := t, 0
	for name, tc := range cases {
		object := fmt.Sprint("lost-", i)
		i++
		t.Run(name, func(t *testing.T) {
			w := b.place(t, object, atPosition("hub-1", 5, 10))
			live := b.value(t, object, "v")
			b.stop()
			if err := b.Delete(t.Context(), &v1alpha1.AppliedWork{ObjectMeta: metav1.ObjectMeta{Name: object}}); err != nil {
				t.Fatal(err)
			}
			if tc.marks != "" {
				b.patch(t, b.object(t, "v1", "ConfigMap", "default", object), tc.marks)
			}
			b.change(t, w, func(s *v1alpha1.WorkSpec) {
				uid := types.UID(tc.uid)
				if tc.uid == "live" {
					uid = live
				}
				s.Removal = &v1alpha1.Removal{Policy: tc.policy, SourceUID: "source-1", UIDs: []types.UID{uid}}
			})
			b.run(outer)
			b.awaitWork(t, w, tc.reason, failed(tc.want, tc.part))
			if got := b.object(t, "v1", "ConfigMap", "default", object) != nil; got != tc.stays {
				t.Errorf("%s\nthe object is there: got %t, want %t", tc.reason, got, tc.stays)
			}
			if tc.want != v1alpha1.ReasonRecordLost {
				return
			}
			// A user decides, with either command of the message.
			o := b.object(t, "v1", "ConfigMap", "default", object)
			if i%2 == 0 {
				b.patch(t, o, kept)
			} else if err := b.Delete(t.Context(), o); err != nil {
				t.Fatal(err)
			}
			b.awaitWork(t, w, "the order is done", failed(v1alpha1.ReasonRemoved, ""))
		})
	}
}

// (Safety 5) The agent removes a recorded object also when a user has removed its marks, or reports who rejects
// that.
func TestAgentRemovesRecordedObjects(t *testing.T) {
	t.Parallel()
	b := start(t)
	outer := t
	for _, namespace := range []string{"default", "made"} {
		t.Run(namespace, func(t *testing.T) {
			w := b.work(t, "stripped-"+namespace, atPosition("hub-1", 5, 10), manifest(t, "configmaps",
				`{apiVersion: v1, kind: ConfigMap, metadata: {name: stripped, namespace: `+namespace+`}, data: {key: v}}`))
			b.awaitWork(t, w, "applied", applied(10))
			b.stop() // it would restore the marks
			b.patch(t, b.object(t, "v1", "ConfigMap", namespace, "stripped"), untouched)
			b.order(t, w)
			b.run(outer)
			if namespace == "made" { // the agent may only change what it created there
				b.soon(t, w, "the rejection is reported", failed(v1alpha1.ReasonRefused, "may not change what it did not make"))
				if b.object(t, "v1", "ConfigMap", namespace, "stripped") == nil {
					t.Error("the object is gone")
				}
				b.patch(t, b.object(t, "v1", "ConfigMap", namespace, "stripped"), `{"metadata":{"labels":{"`+v1alpha1.AccessLabel+`":"adopt"}}}`)
			}
			b.awaitWork(t, w, "the order is done", failed(v1alpha1.ReasonRemoved, ""))
			if b.object(t, "v1", "ConfigMap", namespace, "stripped") != nil {
				t.Error("the object is still there")
			}
		})
	}
}

// patch applies a JSON merge patch.
func (b *testAgent) patch(t *testing.T, o client.Object, text string) {
	t.Helper()
	if err := b.Patch(t.Context(), o, client.RawPatch("application/merge-patch+json", []byte(text))); err != nil {
		t.Fatal(err)
	}
}

// order orders the removal of a Work's object.
func (b *testAgent) order(t *testing.T, w *v1alpha1.Work) {
	t.Helper()
	b.change(t, w, func(s *v1alpha1.WorkSpec) {
		s.Removal = &v1alpha1.Removal{Policy: v1alpha1.OnDeleteDelete, SourceUID: s.Source.UID}
	})
}

// soon waits for a report, which must come within 5 s.
func (b *testAgent) soon(t *testing.T, w *v1alpha1.Work, what string, ok func(v1alpha1.WorkStatus) bool) {
	t.Helper()
	start := time.Now()
	b.awaitWork(t, w, what, ok)
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("%s: reported after %s, want at most 5 s", what, took)
	}
}

// (Safety 5) The agent reports what blocks a removal, and reports the removal as done when the object is gone.
func TestAgentReportsBlockedRemovals(t *testing.T) {
	t.Parallel()
	b := start(t)
	t.Run("finalizer", func(t *testing.T) {
		w := b.place(t, "held", atPosition("hub-1", 5, 10))
		b.patch(t, b.object(t, "v1", "ConfigMap", "default", "held"), `{"metadata":{"finalizers":["example.com/held"]}}`)
		b.order(t, w)
		b.soon(t, w, "the cause is reported", failed(v1alpha1.ReasonRemovalBlocked, "configmaps default/held: it is being deleted, and its finalizers block the deletion: example.com/held"))
		b.patch(t, b.object(t, "v1", "ConfigMap", "default", "held"), `{"metadata":{"finalizers":null}}`)
		b.awaitWork(t, w, "the order is done", failed(v1alpha1.ReasonRemoved, ""))
	})
	t.Run("grace period", func(t *testing.T) {
		if err := b.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "default"}}); client.IgnoreAlreadyExists(err) != nil {
			t.Fatal(err)
		}
		w := b.work(t, "pod", nil, manifest(t, "pods", `{apiVersion: v1, kind: Pod, metadata: {name: ending, namespace: default}, `+
			`spec: {automountServiceAccountToken: false, nodeName: gone, terminationGracePeriodSeconds: 600, containers: [{name: c, image: i}]}}`))
		b.awaitWork(t, w, "applied", applied(1))
		pod := b.object(t, "v1", "Pod", "default", "ending")
		b.order(t, w)
		eventually(t, "it is being deleted", func() error {
			if o := b.object(t, "v1", "Pod", "default", "ending"); o.GetDeletionTimestamp() == nil {
				return errors.New("it is not")
			}
			return nil
		})
		b.silent(t, w)
		if err := b.Delete(t.Context(), pod, client.GracePeriodSeconds(0)); err != nil {
			t.Fatal(err)
		}
		b.awaitWork(t, w, "the order is done", failed(v1alpha1.ReasonRemoved, ""))
	})
}

// silent makes sure that nothing is reported of a removal that is under way.
func (b *testAgent) silent(t *testing.T, w *v1alpha1.Work) {
	t.Helper()
	<-time.After(3 * time.Second)
	fresh := &v1alpha1.Work{}
	if err := b.Get(t.Context(), client.ObjectKeyFromObject(w), fresh); err != nil {
		t.Fatal(err)
	}
	if !meta.IsStatusConditionTrue(fresh.Status.Conditions, v1alpha1.ConditionApplied) {
		t.Errorf("conditions: got %+v, want those of before the order", fresh.Status.Conditions)
	}
}

// (Safety 5) What makes Pods is deleted in the foreground, and so is not gone before them. While they
// end nothing is reported, unless a finalizer holds them.
func TestAgentWaitsForPods(t *testing.T) {
	t.Parallel()
	b := start(t)
	const template = "template: {metadata: {labels: {app: a}}, spec: {automountServiceAccountToken: false, restartPolicy: %s, containers: [{name: c, image: i}]}}"
	if err := b.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "default"}}); client.IgnoreAlreadyExists(err) != nil {
		t.Fatal(err)
	}
	selected := "{selector: {matchLabels: {app: a}}, " + fmt.Sprintf(template, "Always") + "}"
	cases := map[string]struct{ version, resource, spec string }{
		"Deployment":  {"apps/v1", "deployments", selected},
		"StatefulSet": {"apps/v1", "statefulsets", selected},
		"DaemonSet":   {"apps/v1", "daemonsets", selected},
		"Job":         {"batch/v1", "jobs", "{" + fmt.Sprintf(template, "Never") + "}"},
		"CronJob":     {"batch/v1", "cronjobs", `{schedule: "0 0 1 1 *", jobTemplate: {spec: {` + fmt.Sprintf(template, "Never") + "}}}"},
	}
	for kind, tc := range cases {
		t.Run(kind, func(t *testing.T) {
			name := strings.ToLower(kind)
			w := b.work(t, name, atPosition("hub-1", 5, 10), manifest(t, tc.resource,
				fmt.Sprintf("{apiVersion: %s, kind: %s, metadata: {name: %s, namespace: default}, spec: %s}", tc.version, kind, name, tc.spec)))
			b.awaitWork(t, w, "applied", applied(10))
			owner := b.object(t, tc.version, kind, "default", name)
			pod := &corev1.Pod{ // as a controller would make it
				ObjectMeta: metav1.ObjectMeta{
					Namespace: "default", Name: name + "-0", OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(owner, owner.GroupVersionKind())},
				},
				Spec: corev1.PodSpec{NodeName: "gone", AutomountServiceAccountToken: new(bool), Containers: []corev1.Container{{Name: "c", Image: "i"}}},
			}
			if kind == "StatefulSet" { // one of them: it takes seconds
				pod.Finalizers = []string{"example.com/held"}
			}
			if err := b.Create(t.Context(), pod); err != nil {
				t.Fatal(err)
			}
			b.order(t, w)
			eventually(t, "it is being deleted", func() error {
				if o := b.object(t, tc.version, kind, "default", name); o == nil || !slices.Contains(o.GetFinalizers(), metav1.FinalizerDeleteDependents) {
					return fmt.Errorf("got %v, want it with the finalizer %s", o, metav1.FinalizerDeleteDependents)
				}
				return nil
			})
			if err := b.Delete(t.Context(), pod); err != nil { // as the garbage collector does
				t.Fatal(err)
			}
			if kind == "StatefulSet" {
				b.silent(t, w)
				if err := b.Delete(t.Context(), pod, client.GracePeriodSeconds(0)); err != nil { // its containers have ended
					t.Fatal(err)
				}
				b.soon(t, w, "the cause is reported", failed(v1alpha1.ReasonRemovalBlocked,
					"statefulsets.apps default/statefulset: it is being deleted (foregroundDeletion), and the deletion waits for pods default/statefulset-0, which its finalizers block: example.com/held"))
				b.patch(t, pod, `{"metadata":{"finalizers":null}}`)
				b.awaitWork(t, w, "the cause is no longer reported", failed(v1alpha1.ReasonProgressing, "waits for its Pods to end"))
			} else if err := b.Delete(t.Context(), pod, client.GracePeriodSeconds(0)); err != nil {
				t.Fatal(err)
			}
			b.patch(t, owner, `{"metadata":{"finalizers":null}}`) // so does the garbage collector
			b.awaitWork(t, w, "the order is done", failed(v1alpha1.ReasonRemoved, ""))
		})
	}
	t.Run("others", func(t *testing.T) { // no controller has to run for them
		w := b.place(t, "plain", atPosition("hub-1", 5, 10))
		b.order(t, w)
		b.awaitWork(t, w, "the order is done", failed(v1alpha1.ReasonRemoved, ""))
	})
}

// (Safety 5) The agent reports a removal that the API server or admission rejects, and carries it out when it is
// allowed.
func TestAgentReportsRejectedRemovals(t *testing.T) {
	t.Parallel()
	b := start(t)
	t.Run("forbidden", func(t *testing.T) {
		w := b.place(t, "forbidden", atPosition("hub-1", 5, 10))
		b.allow(t, metav1.NamespaceDefault, "none") // the admin closes the namespace
		as, err := client.New(b.local(), client.Options{Scheme: b.Scheme()})
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, "the agent's policy sees the label", func() error {
			if as.Delete(t.Context(), b.object(t, "v1", "ConfigMap", "default", "forbidden"), client.DryRunAll) == nil {
				return errors.New("a deletion is allowed")
			}
			return nil
		})
		b.order(t, w)
		b.soon(t, w, "the rejection is reported", failed(v1alpha1.ReasonRefused, "the agent of a hub may not write in namespace default"))
		b.allow(t, metav1.NamespaceDefault, v1alpha1.AccessAdopt)
		b.awaitWork(t, w, "the order is done", failed(v1alpha1.ReasonRemoved, ""))
	})
	t.Run("invalid", func(t *testing.T) { // the default reason of policies
		w := b.place(t, "precious", atPosition("hub-1", 5, 10))
		policy, binding := keepPolicy()
		if err := errors.Join(b.Create(t.Context(), policy), b.Create(t.Context(), binding)); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the policy is in force", func() error {
			if b.Delete(t.Context(), b.object(t, "v1", "ConfigMap", "default", "precious"), client.DryRunAll) == nil {
				return errors.New("a deletion is allowed")
			}
			return nil
		})
		b.order(t, w)
		b.soon(t, w, "the rejection is reported", failed(v1alpha1.ReasonRefused, "it is precious"))
		if err := b.Delete(t.Context(), binding); err != nil {
			t.Fatal(err)
		}
		b.awaitWork(t, w, "the order is done", failed(v1alpha1.ReasonRemoved, ""))
	})
	t.Run("rights", func(t *testing.T) { // without its RoleBinding the agent cannot read the object
		text := `{apiVersion: v1, kind: ConfigMap, metadata: {name: web, namespace: made}, data: {key: v}}`
		w := b.work(t, "rights", atPosition("hub-1", 5, 10), manifest(t, "configmaps", text))
		b.awaitWork(t, w, "applied", applied(10))
		b.stop()
		for _, o := range []client.Object{
			&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "made", Name: "patchbay-agent"}},
			&v1alpha1.AppliedWork{ObjectMeta: metav1.ObjectMeta{Name: w.Name}},
		} {
			if err := b.Delete(t.Context(), o); err != nil {
				t.Fatal(err)
			}
		}
		b.order(t, w)
		b.run(t)
		b.awaitWork(t, w, "the order is done", failed(v1alpha1.ReasonRemoved, ""))
		if b.object(t, "v1", "ConfigMap", "made", "web") != nil {
			t.Error("the object is still there")
		}
	})
}

// keepPolicy rejects the deletion of the ConfigMap precious.
func keepPolicy() (*admissionv1.ValidatingAdmissionPolicy, *admissionv1.ValidatingAdmissionPolicyBinding) {
	named := metav1.ObjectMeta{Name: "keep.example.com"}
	return &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: named, Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
				Operations: []admissionv1.OperationType{admissionv1.Delete},
				Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
			}}}},
			Validations: []admissionv1.Validation{{Expression: "request.name != 'precious'", Message: "it is precious"}},
		}}, &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: named, Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: "keep.example.com", ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
		}}
}

// The agent removes an object of a kind that is served in another version now. An object of a kind that is not
// served does not count as gone.
func TestAgentRemovesInAnotherVersion(t *testing.T) {
	t.Parallel()
	b := start(t)
	crd := func(v1, v2 bool) *unstructured.Unstructured {
		o := &unstructured.Unstructured{}
		text := fmt.Sprintf(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"widgets.example.com"},"spec":{
			"group":"example.com","scope":"Namespaced","names":{"kind":"Widget","plural":"widgets"},"versions":[
			{"name":"v1","served":%t,"storage":false,"schema":{"openAPIV3Schema":{"type":"object"}}},
			{"name":"v2","served":%t,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}`, v1, v2)
		if err := o.UnmarshalJSON([]byte(text)); err != nil {
			t.Fatal(err)
		}
		return o
	}
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "widgets", Labels: map[string]string{"placement.patchbay.io/aggregate-to-agent": "true"}},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{"example.com"}, Resources: []string{"widgets"}, Verbs: []string{"*"}}},
	}
	if err := errors.Join(b.Create(t.Context(), crd(true, true)), b.Create(t.Context(), role), bed.AggregateAgentRole(t.Context(), b)); err != nil {
		t.Fatal(err)
	}
	serve := func(v1, v2 bool) {
		t.Helper()
		spec, err := json.Marshal(map[string]any{"spec": crd(v1, v2).Object["spec"]})
		if err != nil {
			t.Fatal(err)
		}
		b.patch(t, crd(v1, v2), string(spec))
	}
	w := b.work(t, "widget", nil, manifest(t, "widgets", `{apiVersion: example.com/v1, kind: Widget, metadata: {name: one, namespace: default}}`))
	b.awaitWork(t, w, "applied", applied(1))
	stays := b.work(t, "widget-2", nil, manifest(t, "widgets", `{apiVersion: example.com/v1, kind: Widget, metadata: {name: two, namespace: default}}`))
	b.awaitWork(t, stays, "applied", applied(1))
	serve(false, true)
	eventually(t, "v1 is no longer served", func() error {
		o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Widget"}}
		err := b.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "one"}, o)
		if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
			return nil
		}
		return fmt.Errorf("got %w, want that it is not found", err)
	})
	b.order(t, w)
	b.awaitWork(t, w, "the order is done", failed(v1alpha1.ReasonRemoved, ""))
	if b.object(t, "example.com/v2", "Widget", "default", "one") != nil {
		t.Error("the object is still there")
	}
	serve(false, false) // it is still there, and cannot be removed
	eventually(t, "v2 is no longer served", func() error {
		o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v2", "kind": "Widget"}}
		err := b.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "two"}, o)
		if apierrors.IsNotFound(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) || meta.IsNoMatchError(err) {
			return nil
		}
		return fmt.Errorf("got %w, want that it is not served", err)
	})
	b.order(t, stays)
	b.awaitWork(t, stays, "the error is reported", failed(v1alpha1.ReasonRefused, "CustomResourceDefinition widgets.example.com must serve a version"))
	if err := b.Delete(t.Context(), crd(false, false)); err != nil {
		t.Fatal(err)
	}
	b.awaitWork(t, stays, "the object is gone with its definition", failed(v1alpha1.ReasonRemoved, ""))
}

// (Safety 4) The agent carries out the order of a restored hub only when a user answers TakeHub, and ignores it when
// the user answers TakeCluster.
func TestAgentWaitsBeforeAnOldOrder(t *testing.T) {
	t.Parallel()
	b := start(t)
	halted := func(t *testing.T, name string) *v1alpha1.Work {
		t.Helper()
		w := b.place(t, name, atPosition("hub-1", 5, 10))
		b.restore(t, w, "restored", func(s *v1alpha1.WorkSpec) {
			atPosition("hub-1", 5, 7)(s)
			s.Removal = &v1alpha1.Removal{Policy: v1alpha1.OnDeleteDelete, SourceUID: s.Source.UID}
		})
		s := b.awaitWork(t, w, "the Work is halted", failed(v1alpha1.ConditionHubMismatch, ""))
		if want := "ConfigMap default/" + name + ": would be removed"; s.Halted == nil || len(s.Halted.Differences) != 1 || s.Halted.Differences[0] != want {
			t.Errorf("halted: got %+v, want %q", s.Halted, want)
		}
		return w
	}
	t.Run("hub", func(t *testing.T) {
		w := halted(t, "taken")
		b.answer(t, w, v1alpha1.TakeHub)
		b.awaitWork(t, w, "it is removed", failed(v1alpha1.ReasonRemoved, ""))
		if b.object(t, "v1", "ConfigMap", "default", "taken") != nil {
			t.Error("the object is still there")
		}
	})
	t.Run("cluster", func(t *testing.T) {
		w := halted(t, "kept")
		uid := b.value(t, "kept", "v")
		for reason, answer := range map[string]string{
			"The answer is about an earlier record.": "hub:hub-1/epoch of hub-1/5/9:" + w.Spec.Position(),
			"The hub has changed the Work since.":    "hub:hub-1/epoch of hub-1/5/10:hub-1/epoch of hub-1/5/6",
		} {
			b.patch(t, w, fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, v1alpha1.ResumeAnnotation, answer))
			b.awaitWork(t, w, reason, failed(v1alpha1.ConditionHubMismatch, fmt.Sprintf("%q is ignored", answer)))
		}
		b.answer(t, w, v1alpha1.TakeCluster)
		b.awaitWork(t, w, "the Work is resumed", applied(w.Spec.Revision))
		if got := b.value(t, "kept", "v"); got != uid {
			t.Errorf("UID: got %s, want %s: the object was removed", got, uid)
		}
		b.change(t, w, func(s *v1alpha1.WorkSpec) { s.SourceGeneration++ }) // the hub orders the removal again
		b.awaitWork(t, w, "the new order is carried out", failed(v1alpha1.ReasonRemoved, ""))
	})
}

// (Safety 4) While a Work does not match its record with an order, the agent neither removes nor recreates its
// objects.
func TestAgentHaltsAnOrderInARecord(t *testing.T) {
	t.Parallel()
	b := start(t)
	w := b.place(t, "half", atPosition("hub-1", 5, 10))
	b.patch(t, b.object(t, "v1", "ConfigMap", "default", "half"), `{"metadata":{"finalizers":["example.com/held"]}}`)
	b.order(t, w)
	b.awaitWork(t, w, "the removal is blocked", failed(v1alpha1.ReasonRemovalBlocked, ""))
	b.restore(t, w, "v", func(s *v1alpha1.WorkSpec) {
		atPosition("hub-1", 5, 7)(s)
		s.Removal = nil
	})
	b.awaitWork(t, w, "the Work is halted", failed(v1alpha1.ConditionHubMismatch, ""))
	b.patch(t, b.object(t, "v1", "ConfigMap", "default", "half"), `{"metadata":{"finalizers":null}}`)
	b.stop()
	b.run(t)
	<-time.After(3 * time.Second)
	if b.object(t, "v1", "ConfigMap", "default", "half") != nil {
		t.Error("the agent created the removed object again")
	}
	b.answer(t, w, v1alpha1.TakeHub) // the hub has no order
	b.awaitWork(t, w, "the Work is applied", applied(7))
	b.value(t, "half", "v")
}

// (Safety 7) A Secret keeps its data when its record stays, although the hub has other data, and the agent was
// restarted.
func TestAgentKeepsTheClustersSecret(t *testing.T) {
	t.Parallel()
	b := start(t)
	beside := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: clusterNamespace, Name: "secret-db", Annotations: map[string]string{v1alpha1.DataVersionAnnotation: "v2"}},
		Data:       map[string][]byte{"password": []byte("hunter2")},
	}
	if err := b.Create(t.Context(), beside); err != nil {
		t.Fatal(err)
	}
	at := func(version string) v1alpha1.Manifest {
		m := manifest(t, "secrets", "{apiVersion: v1, kind: Secret, metadata: {name: db, namespace: shop}}")
		m.Secret = &v1alpha1.SecretData{Version: version}
		return m
	}
	w := b.work(t, "secret-db", atPosition("hub-1", 5, 10), at("v2"))
	b.awaitWork(t, w, "applied", applied(10))
	uid := b.object(t, "v1", "Secret", "shop", "db").GetUID()
	b.stop()
	beside.Data["password"], beside.Annotations[v1alpha1.DataVersionAnnotation] = []byte("hunter1"), "v1"
	if err := b.Update(t.Context(), beside); err != nil {
		t.Fatal(err)
	}
	b.change(t, w, func(s *v1alpha1.WorkSpec) {
		atPosition("hub-2", 1, 3)(s)
		s.Manifests = []v1alpha1.Manifest{at("v1")}
	})
	b.run(t)
	s := b.awaitWork(t, w, "the Work is halted", failed(v1alpha1.ConditionHubMismatch, ""))
	if len(s.Manifests) != 1 || s.Manifests[0].UID != uid {
		t.Errorf("report: got %+v, want the Secret's UID %s", s.Manifests, uid)
	}
	b.answer(t, w, v1alpha1.TakeCluster)
	b.awaitWork(t, w, "the Work is resumed", applied(3))
	o := b.object(t, "v1", "Secret", "shop", "db")
	if o.GetUID() != uid || field(o, "data", "password") != "aHVudGVyMg==" || o.GetAnnotations()[v1alpha1.HubUIDAnnotation] != "hub-2" {
		t.Errorf("got UID %s, data %s, annotations %v, want the same object and data, with the new hub's marks",
			o.GetUID(), field(o, "data"), o.GetAnnotations())
	}
}

// (Safety 4) An agent that starts while its hub is unreachable repairs the recorded objects, and carries out no
// order, not even one in a record.
func TestAgentRemovesNothingWithoutTheHub(t *testing.T) {
	t.Parallel()
	b := start(t)
	w, kept := b.place(t, "waits", atPosition("hub-1", 5, 10)), b.place(t, "kept", atPosition("hub-1", 5, 10))
	b.stop()
	b.order(t, w)
	rec := &v1alpha1.AppliedWork{}
	if err := b.Get(t.Context(), client.ObjectKey{Name: w.Name}, rec); err != nil {
		t.Fatal(err)
	}
	rec.Spec.Work = w.Spec
	if err := b.Update(t.Context(), rec); err != nil {
		t.Fatal(err)
	}
	b.runAt(t, &rest.Config{Host: "https://127.0.0.1:1"})
	for range 3 {
		<-time.After(time.Second) // the agent has started
		if err := b.Delete(t.Context(), b.object(t, "v1", "ConfigMap", "default", kept.Name)); err != nil {
			t.Fatal(err)
		}
		b.value(t, kept.Name, "v")
	}
	b.value(t, w.Name, "v")
	b.stop()
	b.run(t)
	b.awaitWork(t, w, "the order is carried out", failed(v1alpha1.ReasonRemoved, ""))
}

// An agent that starts with an order in a record reads the hub's Works first: the order may be withdrawn.
func TestAgentStartsWithAnOrder(t *testing.T) {
	t.Parallel()
	b := start(t)
	w := b.place(t, "taken-back", atPosition("hub-1", 5, 10))
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
		t.Errorf("UID: got %s, want %s: the object was recreated", got, uid)
	}
}
