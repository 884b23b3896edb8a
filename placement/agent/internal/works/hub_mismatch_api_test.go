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
	s := b.awaitWork(t, w, "it is halted", func(s v1alpha1.WorkStatus) bool { return s.Halted != nil && s.Halted.Work == w.Spec.Position() })
	patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`,
		v1alpha1.ResumeAnnotation, v1alpha1.ResumeAnswer(take, s.Halted.Record, w.Spec.Position())))
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
		"older":     {"The hub was restored.", signed("hub-1", 5, 7), "term 5, revision 7"},
		"overtaken": {"Edits after the restore have overtaken the record.", signed("hub-1", 6, 20, v1alpha1.WorkPosition{Term: 5, Revision: 7}), "term 6, revision 20"},
		"rewritten": {"One position has one content.", signed("hub-1", 5, 10), "with another content"},
		"other":     {"The hub was made again.", signed("hub-2", 6, 1), "of hub hub-2"},
		"equal":     {"It has counted as far as the former one by chance.", signed("hub-2", 6, 10), "of hub hub-2"},
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
				b.awaitWork(t, early, "it is not begun", failed(v1alpha1.ConditionHubMismatch, "new objects wait: Work "+name))
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
		b.awaitWork(t, leaving, "the order waits", failed(v1alpha1.ConditionHubMismatch, "removals wait: Work holds"))
		b.value(t, "leaving", "v")
		b.answer(t, w, v1alpha1.TakeCluster)
		b.awaitWork(t, leaving, "it is carried out", failed(v1alpha1.ReasonRemoved, ""))
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

// Patches of what marks an object as ours.
const (
	unmarked   = `{"metadata":{"labels":null,"annotations":null}}`
	unlabelled = `{"metadata":{"labels":null}}`
	labelOnly  = `{"metadata":{"annotations":null,"managedFields":[{}]}}`
	sourceless = `{"metadata":{"annotations":{"` + v1alpha1.SourceUIDAnnotation + `":null}}}`
	untouched  = `{"metadata":{"labels":null,"annotations":null,"managedFields":[{}]}}` // as if it had never been ours
	kept       = `{"metadata":{"labels":{"` + v1alpha1.ManagedLabel + `":"false"}}}`
)

// (Safety 5) An order without a record removes what has our marks and the UID of the order, and nothing
// else. It is not reported done while the object may be there.
func TestAgentRemovesWithoutRecords(t *testing.T) {
	b := start(t)
	const del, orphan = v1alpha1.OnDeleteDelete, v1alpha1.OnDeleteOrphan
	cases := map[string]struct {
		reason string
		policy v1alpha1.OnDelete
		uid    string // "": not reported, "live": the object's
		marks  string // a patch of what marks the object as ours
		want   string // the reason that is reported
		part   string // of the message
		stays  bool
	}{
		"known":                {"The hub was told of this very object.", del, "live", "", v1alpha1.ReasonRemoved, "", false},
		"known, unmarked":      {"Somebody keeps it, and it is still there.", del, "live", unmarked, v1alpha1.ReasonRecordLost, "has the UID of the order, and not the label", true},
		"known, unlabelled":    {"So is this.", del, "live", unlabelled, v1alpha1.ReasonRecordLost, "has the UID of the order, and not the label", true},
		"known, untouched":     {"It was reported as ours.", del, "live", untouched, v1alpha1.ReasonRecordLost, "has the UID of the order, and not the label", true},
		"known, kept":          {"A person says that it stays.", del, "live", kept, v1alpha1.ReasonRemoved, "", true},
		"orphaned":             {"It is let go.", orphan, "live", "", v1alpha1.ReasonRemoved, "", true},
		"orphaned, unmarked":   {"Nothing of it is to be removed.", orphan, "live", unmarked, v1alpha1.ReasonRemoved, "", true},
		"marked":               {"It was made for this order's source.", del, "", "", v1alpha1.ReasonRemoved, "", false},
		"not known":            {"It is not ours.", del, "", untouched, v1alpha1.ReasonRemoved, "", true},
		"not known, our field": {"We have written it.", del, "", unmarked, v1alpha1.ReasonRecordLost, "and the order has no UID", true},
		"not known, our label": {"It has our label.", del, "", labelOnly, v1alpha1.ReasonRecordLost, "and the order has no UID", true},
		"replaced":             {"The known one is gone, and this one is not ours.", del, "x", untouched, v1alpha1.ReasonRemoved, "", true},
		"replaced, our field":  {"The known one is gone, and we have written this one.", del, "x", unmarked, v1alpha1.ReasonRecordLost, "and the order is for UID x", true},
		"another":              {"It is marked, and is not the one that the hub knows.", del, "x", "", v1alpha1.ReasonRecordLost, "and the order is for UID x", true},
		"half marked":          {"It is this hub's, and its source is not known.", del, "", sourceless, v1alpha1.ReasonRecordLost, "and the order has no UID", true},
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
			// A person decides, by either command of the message.
			o := b.object(t, "v1", "ConfigMap", "default", object)
			if i%2 == 0 {
				b.patch(t, o, kept)
			} else if err := b.Delete(t.Context(), o); err != nil {
				t.Fatal(err)
			}
			b.awaitWork(t, w, "it is done then", failed(v1alpha1.ReasonRemoved, ""))
		})
	}
}

// (Safety 5) By its record an object is ours, also when somebody has taken its marks off: it is removed,
// or it is said who refuses that.
func TestAgentRemovesWhatItsRecordHas(t *testing.T) {
	b := start(t)
	outer := t
	for _, namespace := range []string{"default", "made"} {
		t.Run(namespace, func(t *testing.T) {
			w := b.work(t, "stripped-"+namespace, signed("hub-1", 5, 10), manifest(t, "configmaps",
				`{apiVersion: v1, kind: ConfigMap, metadata: {name: stripped, namespace: `+namespace+`}, data: {key: v}}`))
			b.awaitWork(t, w, "applied", applied(10))
			b.stop() // it would repair the marks
			b.patch(t, b.object(t, "v1", "ConfigMap", namespace, "stripped"), untouched)
			b.order(t, w)
			b.run(outer)
			if namespace == "made" { // whose admin has allowed only what the agent made
				b.soon(t, w, "it says who refuses", failed(v1alpha1.ReasonRefused, "may not change what it did not make"))
				if b.object(t, "v1", "ConfigMap", namespace, "stripped") == nil {
					t.Error("the object is gone")
				}
				b.patch(t, b.object(t, "v1", "ConfigMap", namespace, "stripped"), `{"metadata":{"labels":{"`+v1alpha1.AccessLabel+`":"adopt"}}}`)
			}
			b.awaitWork(t, w, "it is done", failed(v1alpha1.ReasonRemoved, ""))
			if b.object(t, "v1", "ConfigMap", namespace, "stripped") != nil {
				t.Error("the object is still there")
			}
		})
	}
}

// patch applies a JSON merge patch.
func (b *bench) patch(t *testing.T, o client.Object, text string) {
	t.Helper()
	if err := b.Patch(t.Context(), o, client.RawPatch("application/merge-patch+json", []byte(text))); err != nil {
		t.Fatal(err)
	}
}

// order orders the removal of a Work's object.
func (b *bench) order(t *testing.T, w *v1alpha1.Work) {
	t.Helper()
	b.change(t, w, func(s *v1alpha1.WorkSpec) {
		s.Removal = &v1alpha1.Removal{Policy: v1alpha1.OnDeleteDelete, SourceUID: s.Source.UID}
	})
}

// soon waits for a report that is due within 5 s.
func (b *bench) soon(t *testing.T, w *v1alpha1.Work, what string, ok func(v1alpha1.WorkStatus) bool) {
	t.Helper()
	start := time.Now()
	b.awaitWork(t, w, what, ok)
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("%s: reported after %s, want at most 5 s", what, took)
	}
}

// (Safety 5) A removal that something holds is reported, with what holds it, and is done when the
// object is gone.
func TestAgentReportsHeldRemovals(t *testing.T) {
	b := start(t)
	t.Run("finalizer", func(t *testing.T) {
		w := b.made(t, "held", signed("hub-1", 5, 10))
		b.patch(t, b.object(t, "v1", "ConfigMap", "default", "held"), `{"metadata":{"finalizers":["example.com/held"]}}`)
		b.order(t, w)
		b.soon(t, w, "it says what holds it", failed(v1alpha1.ReasonRemovalBlocked, "configmaps default/held: it is being deleted, and its finalizers hold it: example.com/held"))
		b.patch(t, b.object(t, "v1", "ConfigMap", "default", "held"), `{"metadata":{"finalizers":null}}`)
		b.awaitWork(t, w, "it is done", failed(v1alpha1.ReasonRemoved, ""))
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
		b.awaitWork(t, w, "it is done", failed(v1alpha1.ReasonRemoved, ""))
	})
}

// silent makes sure that nothing is reported of a removal that is under way.
func (b *bench) silent(t *testing.T, w *v1alpha1.Work) {
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
			w := b.work(t, name, signed("hub-1", 5, 10), manifest(t, tc.resource,
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
				b.soon(t, w, "it says what holds it", failed(v1alpha1.ReasonRemovalBlocked,
					"statefulsets.apps default/statefulset: it is being deleted (foregroundDeletion), and waits for pods default/statefulset-0, which its finalizers hold: example.com/held"))
				b.patch(t, pod, `{"metadata":{"finalizers":null}}`)
				b.awaitWork(t, w, "that is no longer said", failed(v1alpha1.ReasonProgressing, "waits for its Pods to end"))
			} else if err := b.Delete(t.Context(), pod, client.GracePeriodSeconds(0)); err != nil {
				t.Fatal(err)
			}
			b.patch(t, owner, `{"metadata":{"finalizers":null}}`) // so does the garbage collector
			b.awaitWork(t, w, "it is done", failed(v1alpha1.ReasonRemoved, ""))
		})
	}
	t.Run("others", func(t *testing.T) { // nobody else need run to remove them
		w := b.made(t, "plain", signed("hub-1", 5, 10))
		b.order(t, w)
		b.awaitWork(t, w, "it is done", failed(v1alpha1.ReasonRemoved, ""))
	})
}

// (Safety 5) A removal that the API server or an admission plug-in refuses is reported, and done
// when it is no longer refused.
func TestAgentReportsRefusedRemovals(t *testing.T) {
	b := start(t)
	t.Run("forbidden", func(t *testing.T) {
		w := b.made(t, "forbidden", signed("hub-1", 5, 10))
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
		b.soon(t, w, "it says who refuses", failed(v1alpha1.ReasonRefused, "the agent of a hub may not write in namespace default"))
		b.allow(t, metav1.NamespaceDefault, v1alpha1.AccessAdopt)
		b.awaitWork(t, w, "it is done", failed(v1alpha1.ReasonRemoved, ""))
	})
	t.Run("invalid", func(t *testing.T) { // the reason that policies have unless they name another
		w := b.made(t, "precious", signed("hub-1", 5, 10))
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
		b.soon(t, w, "it says who refuses", failed(v1alpha1.ReasonRefused, "it is precious"))
		if err := b.Delete(t.Context(), binding); err != nil {
			t.Fatal(err)
		}
		b.awaitWork(t, w, "it is done", failed(v1alpha1.ReasonRemoved, ""))
	})
	t.Run("rights", func(t *testing.T) { // its RoleBinding is deleted: that does not mean that the object is gone
		text := `{apiVersion: v1, kind: ConfigMap, metadata: {name: web, namespace: made}, data: {key: v}}`
		w := b.work(t, "rights", signed("hub-1", 5, 10), manifest(t, "configmaps", text))
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
		b.awaitWork(t, w, "it is done", failed(v1alpha1.ReasonRemoved, ""))
		if b.object(t, "v1", "ConfigMap", "made", "web") != nil {
			t.Error("the object is still there")
		}
	})
}

// keepPolicy refuses to delete the ConfigMap precious.
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

// An order for an object whose kind is no longer served in the version that it was made in
// removes it in another. Where no version is served it is not taken for gone.
func TestAgentRemovesWhatIsServedInAnotherVersion(t *testing.T) {
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
	b.awaitWork(t, w, "it is done", failed(v1alpha1.ReasonRemoved, ""))
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
	b.awaitWork(t, stays, "it cannot be removed", failed(v1alpha1.ReasonRefused, "CustomResourceDefinition widgets.example.com must serve a version"))
	if err := b.Delete(t.Context(), crd(false, false)); err != nil {
		t.Fatal(err)
	}
	b.awaitWork(t, stays, "it is gone with its definition", failed(v1alpha1.ReasonRemoved, ""))
}

// (Safety 4) The order of a restored hub is carried out when a person says so, and is none when
// a person says that the cluster's state stays.
func TestAgentAsksBeforeAnOldOrder(t *testing.T) {
	b := start(t)
	halted := func(t *testing.T, name string) *v1alpha1.Work {
		t.Helper()
		w := b.made(t, name, signed("hub-1", 5, 10))
		b.restore(t, w, "restored", func(s *v1alpha1.WorkSpec) {
			signed("hub-1", 5, 7)(s)
			s.Removal = &v1alpha1.Removal{Policy: v1alpha1.OnDeleteDelete, SourceUID: s.Source.UID}
		})
		s := b.awaitWork(t, w, "it is halted", failed(v1alpha1.ConditionHubMismatch, ""))
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
			"It is about an earlier record.": "hub:hub-1/epoch of hub-1/5/9:" + w.Spec.Position(),
			"The hub has ordered since.":     "hub:hub-1/epoch of hub-1/5/10:hub-1/epoch of hub-1/5/6",
		} {
			b.patch(t, w, fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, v1alpha1.ResumeAnnotation, answer))
			b.awaitWork(t, w, reason, failed(v1alpha1.ConditionHubMismatch, fmt.Sprintf("%q is ignored", answer)))
		}
		b.answer(t, w, v1alpha1.TakeCluster)
		b.awaitWork(t, w, "it goes on", applied(w.Spec.Revision))
		if got := b.value(t, "kept", "v"); got != uid {
			t.Errorf("UID: got %s, want %s: the object was removed", got, uid)
		}
		b.change(t, w, func(s *v1alpha1.WorkSpec) { s.SourceGeneration++ }) // the hub orders it again
		b.awaitWork(t, w, "a new order counts", failed(v1alpha1.ReasonRemoved, ""))
	})
}

// (Safety 4) While a record with an order does not fit its Work, nothing of it is removed, nor made
// again.
func TestAgentHaltsAnOrderInARecord(t *testing.T) {
	b := start(t)
	w := b.made(t, "half", signed("hub-1", 5, 10))
	b.patch(t, b.object(t, "v1", "ConfigMap", "default", "half"), `{"metadata":{"finalizers":["example.com/held"]}}`)
	b.order(t, w)
	b.awaitWork(t, w, "it is held", failed(v1alpha1.ReasonRemovalBlocked, ""))
	b.restore(t, w, "v", func(s *v1alpha1.WorkSpec) {
		signed("hub-1", 5, 7)(s)
		s.Removal = nil
	})
	b.awaitWork(t, w, "it is halted", failed(v1alpha1.ConditionHubMismatch, ""))
	b.patch(t, b.object(t, "v1", "ConfigMap", "default", "half"), `{"metadata":{"finalizers":null}}`)
	b.stop()
	b.run(t)
	<-time.After(3 * time.Second)
	if b.object(t, "v1", "ConfigMap", "default", "half") != nil {
		t.Error("what was removed is made again")
	}
	b.answer(t, w, v1alpha1.TakeHub) // the hub knows of no order
	b.awaitWork(t, w, "it is applied", applied(7))
	b.value(t, "half", "v")
}

// (Safety 7) A Secret whose record stays keeps its data, though the hub has others, and the agent
// that knew them has ended.
func TestAgentKeepsTheClustersSecret(t *testing.T) {
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
	w := b.work(t, "secret-db", signed("hub-1", 5, 10), at("v2"))
	b.awaitWork(t, w, "applied", applied(10))
	uid := b.object(t, "v1", "Secret", "shop", "db").GetUID()
	b.stop()
	beside.Data["password"], beside.Annotations[v1alpha1.DataVersionAnnotation] = []byte("hunter1"), "v1"
	if err := b.Update(t.Context(), beside); err != nil {
		t.Fatal(err)
	}
	b.change(t, w, func(s *v1alpha1.WorkSpec) {
		signed("hub-2", 1, 3)(s)
		s.Manifests = []v1alpha1.Manifest{at("v1")}
	})
	b.run(t)
	s := b.awaitWork(t, w, "it is halted", failed(v1alpha1.ConditionHubMismatch, ""))
	if len(s.Manifests) != 1 || s.Manifests[0].UID != uid {
		t.Errorf("report: got %+v, want the Secret's UID %s", s.Manifests, uid)
	}
	b.answer(t, w, v1alpha1.TakeCluster)
	b.awaitWork(t, w, "it goes on", applied(3))
	o := b.object(t, "v1", "Secret", "shop", "db")
	if o.GetUID() != uid || field(o, "data", "password") != "aHVudGVyMg==" || o.GetAnnotations()[v1alpha1.HubUIDAnnotation] != "hub-2" {
		t.Errorf("got UID %s, data %s, annotations %v, want the same object and data, with the new hub's marks",
			o.GetUID(), field(o, "data"), o.GetAnnotations())
	}
}

// (Safety 4) An agent that starts while its hub is away repairs what its records have, and carries
// out no order, not even one in a record.
func TestAgentHearsTheHubBeforeItRemoves(t *testing.T) {
	b := start(t)
	w, kept := b.made(t, "waits", signed("hub-1", 5, 10)), b.made(t, "kept", signed("hub-1", 5, 10))
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
	b.awaitWork(t, w, "it is carried out", failed(v1alpha1.ReasonRemoved, ""))
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
