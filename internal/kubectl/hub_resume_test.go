// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// workOf returns a Work with its agent's report of a halt.
func workOf(cluster, name string, h *v1alpha1.HaltedWork, removal *v1alpha1.Removal) v1alpha1.Work {
	return v1alpha1.Work{
		ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.ClusterNamespacePrefix + cluster, Name: name, UID: "u1"},
		Spec: v1alpha1.WorkSpec{
			HubUID: "hub", Epoch: "e", Term: 5, Revision: 7, Removal: removal,
			Source: v1alpha1.ObjectReference{Kind: "Deployment", Namespace: "shop", Name: name},
		},
		Status: v1alpha1.WorkStatus{Halted: h},
	}
}

func TestResumeListsOutcomes(t *testing.T) {
	t.Parallel()
	record := &v1alpha1.HaltedWork{Record: "hub/e/5/10", Work: "hub/e/5/7"}
	differs := &v1alpha1.HaltedWork{Record: "hub/e/5/10", Work: "hub/e/5/7", Differences: []string{"Deployment shop/web: spec.replicas: 3 in the cluster, 2 at the hub"}}
	late := &v1alpha1.HaltedWork{Record: "hub/e/5/10", Work: "hub/e/5/6"}
	many := &v1alpha1.HaltedWork{Record: "hub/e/5/10", Work: "hub/e/5/7"}
	for i := range maxReportedDifferences {
		many.Differences = append(many.Differences, fmt.Sprintf("Deployment shop/web: d%d", i))
	}
	remove, orphan := &v1alpha1.Removal{Policy: v1alpha1.OnDeleteDelete}, &v1alpha1.Removal{Policy: v1alpha1.OnDeleteOrphan}
	all := []v1alpha1.Work{
		workOf("east", "web", differs, nil), workOf("east", "same", record, nil), workOf("east", "old", record, remove), workOf("east", "data", record, orphan),
		workOf("east", "new", &v1alpha1.HaltedWork{}, nil), workOf("west", "web", record, nil), workOf("west", "rest", &v1alpha1.HaltedWork{}, remove),
	}
	cases := map[string]struct {
		reason string
		take   string
		yes    bool
		works  []v1alpha1.Work
		others map[string]int
		asked  int
		away   int
		want   []string
	}{
		"Hub": {reason: "removals are listed", take: v1alpha1.TakeHub, works: all, asked: 5, away: 1, want: []string{
			"east  Deployment shop/web: becomes in east what the hub says",
			"      spec.replicas: 3 in the cluster, 2 at the hub",
			"east  Deployment shop/same: is the same in east",
			"east  Deployment shop/old: is removed from east",
			"east  Deployment shop/data: is orphaned in east: it stays there, and Patchbay does not manage it any more",
			"east  Deployment shop/new: is created in east when the others are answered",
			"west  Deployment shop/web: is the same in west",
			"west  Deployment shop/rest: is removed from west when the others are answered",
			"west does not report: the answer reaches it when it is back",
			"Works that are halted: 5 (changed: 1, removed: 1, orphaned: 1, the same: 2). Works that wait for them: 2. Clusters that do not report: 1",
			"Nothing was changed. To answer them: again --confirm=" + (&resumption{take: v1alpha1.TakeHub}).digest(all),
		}},
		"Cluster": {reason: "no object changes", take: v1alpha1.TakeCluster, works: all[:3], asked: 3, want: []string{
			"east  Deployment shop/web: stays as it is in east",
			"      spec.replicas: 3 in the cluster, 2 at the hub",
			"east  Deployment shop/same: stays as it is in east",
			"east  Deployment shop/old: stays as it is in east",
			"Works that are halted: 3 (kept as they are: 3). Works that wait for them: 0",
			"Nothing was changed. To answer them: again",
		}},
		"Yes": {reason: "the list shows the done effects", take: v1alpha1.TakeHub, yes: true, works: all[2:3], asked: 1, want: []string{
			"east  Deployment shop/old: is removed from east", "Works that are halted: 1 (removed: 1). Works that wait for them: 0",
		}},
		"Cut": {reason: "a truncated list has a note", take: v1alpha1.TakeHub, works: []v1alpha1.Work{workOf("east", "web", many, nil)}, asked: 1, want: append(append(
			[]string{"east  Deployment shop/web: becomes in east what the hub says"},
			strings.Split(strings.ReplaceAll(strings.Join(many.Differences, "\n"), "Deployment shop/web: ", "      "), "\n")...),
			"      (the agent reports the first 20 differences)",
			"Works that are halted: 1 (changed: 1). Works that wait for them: 0",
			"Nothing was changed. To answer them: again --confirm="+(&resumption{take: v1alpha1.TakeHub}).digest([]v1alpha1.Work{workOf("east", "web", many, nil)}),
		)},
		"Late": {reason: "the hub changed the Work after the agent reported", take: v1alpha1.TakeHub, yes: true, works: []v1alpha1.Work{workOf("east", "web", late, nil)}, asked: 1, want: []string{
			"east  Deployment shop/web: becomes in east what the hub says",
			"      (the hub has changed it since the agent reported that)",
			"Works that are halted: 1 (changed: 1). Works that wait for them: 0",
		}},
		"Away": {
			reason: "an unreachable agent has not reported its halted Works yet", take: v1alpha1.TakeCluster, yes: true, works: append(all[:1:1], all[5]),
			others: map[string]int{"east": 5, "north": 3, "west": 9}, asked: 2, away: 2, want: []string{
				"east  Deployment shop/web: stays as it is in east",
				"      spec.replicas: 3 in the cluster, 2 at the hub",
				"west  Deployment shop/web: stays as it is in west",
				"north does not report: it has Works that may be halted when it is back (3): run the command again then",
				"west does not report: the answer reaches it when it is back",
				"west does not report: it has Works that may be halted when it is back (9): run the command again then",
				"Works that are halted: 2 (kept as they are: 2). Works that wait for them: 0. Clusters that do not report: 2",
			},
		},
		"None, and away": {reason: "unreachable clusters are named in any case", take: v1alpha1.TakeHub, others: map[string]int{"west": 9}, away: 1, want: []string{
			"west does not report: it has Works that may be halted when it is back (9): run the command again then",
			"no Work is halted: there is nothing to answer. Clusters that do not report: 1",
		}},
		"Waiting": {reason: "the other Works have their answers already", take: v1alpha1.TakeHub, works: all[4:5], want: []string{
			"east  Deployment shop/new: is created in east when the others are answered",
			"no Work is halted with a record: there is nothing to answer. Works that go on when agents report again: 1",
		}},
		"None": {reason: "an empty list has a message", take: v1alpha1.TakeHub, want: []string{"no Work is halted: there is nothing to answer"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			r := &resumption{take: tc.take, yes: tc.yes, command: "again"}
			asked, away, err := r.print(&out, workListing{halted: tc.works, notHalted: tc.others}, map[string]bool{"east": true, "west": false})
			if err != nil || len(asked) != tc.asked || away != tc.away {
				t.Errorf("%s: %d to answer, %d away, %v, want %d and %d", tc.reason, len(asked), away, err, tc.asked, tc.away)
			}
			if diff := cmp.Diff(tc.want, strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")); diff != "" {
				t.Errorf("%s: -want +got\n%s", tc.reason, diff)
			}
		})
	}
}

// A digest changes with each Work, state or effect that the dry run did not list. It does not depend
// on the order of the Works.
func TestDigest(t *testing.T) {
	t.Parallel()
	r := &resumption{take: v1alpha1.TakeHub}
	record, remove := "hub/e/5/10", &v1alpha1.Removal{Policy: v1alpha1.OnDeleteDelete}
	h := func(record string) *v1alpha1.HaltedWork {
		return &v1alpha1.HaltedWork{Record: record, Work: "hub/e/5/7", Differences: []string{"d"}}
	}
	web, old := workOf("east", "web", h(record), nil), workOf("east", "old", h(record), remove)
	web.UID = "u2"
	seen := r.digest([]v1alpha1.Work{web, old})
	with := func(change func(w *v1alpha1.Work)) []v1alpha1.Work {
		w := *web.DeepCopy()
		change(&w)
		return []v1alpha1.Work{w, old}
	}
	for name, tc := range map[string]struct {
		reason string
		works  []v1alpha1.Work
		same   bool
	}{
		"order":           {"The order of the Works does not matter.", []v1alpha1.Work{old, web}, true},
		"created":         {"A Work that is only created changes no object in a cluster.", []v1alpha1.Work{web, old, workOf("east", "new", h(""), nil)}, true},
		"came back":       {"A cluster is back with an old removal.", []v1alpha1.Work{web, old, workOf("west", "old", h(record), remove)}, false},
		"waiting removal": {"A removal that waits follows from the answer.", []v1alpha1.Work{web, old, workOf("west", "old", h(""), remove)}, false},
		"gone":            {"Another user answered a Work.", []v1alpha1.Work{web}, false},
		"another Work":    {"The Work was created again.", with(func(w *v1alpha1.Work) { w.UID = "u3" }), false},
		"record":          {"The cluster has another state.", with(func(w *v1alpha1.Work) { w.Status.Halted.Record = "hub/e/5/11" }), false},
		"position":        {"The hub has changed the Work.", with(func(w *v1alpha1.Work) { w.Spec.Revision++ }), false},
		"effect":          {"The object would be removed.", with(func(w *v1alpha1.Work) { w.Spec.Removal = remove }), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := r.digest(tc.works); (got == seen) != tc.same {
				t.Errorf("%s\ngot %s after %s, want the same: %t", tc.reason, got, seen, tc.same)
			}
		})
	}
}

// A failed answer does not stop the others, and each failure is named. A deleted Work needs no answer,
// nor does a new one of the same name.
func TestAnswersThatFail(t *testing.T) {
	t.Parallel()
	resource := schema.GroupResource{Group: "placement.patchbay.io", Resource: "works"}
	var mu sync.Mutex
	patches := map[string][]string{}
	c := fakeHub(t, interceptor.Funcs{
		Patch: func(_ context.Context, _ client.WithWatch, o client.Object, p client.Patch, _ ...client.PatchOption) error {
			raw, err := p.Data(o)
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			name := o.GetName()
			patches[name] = append(patches[name], string(raw))
			switch {
			case name == "forbidden":
				return apierrors.NewForbidden(resource, name, nil)
			case name == "gone":
				return apierrors.NewNotFound(resource, name)
			case name == "other", name == "busy" && len(patches[name]) == 1:
				return apierrors.NewConflict(resource, name, nil)
			case name == "invalid":
				return apierrors.NewInvalid(schema.GroupKind{Kind: "Work"}, name, nil)
			}
			return nil
		},
		Get: func(_ context.Context, _ client.WithWatch, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
			if o.SetUID("u1"); key.Name == "other" {
				o.SetUID("u2")
			}
			return nil
		},
	})
	var asked []v1alpha1.Work
	for _, name := range []string{"forbidden", "gone", "other", "busy", "invalid", "web"} {
		asked = append(asked, workOf("east", name, &v1alpha1.HaltedWork{Record: "hub/e/5/10"}, nil))
	}
	var out bytes.Buffer
	err := (&resumption{take: v1alpha1.TakeHub}).answer(t.Context(), c, asked, 3, &out)
	if want := "2 of 6 Works are answered; deleted meanwhile: 2; clusters that do not report: 3\n"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
	for _, want := range []string{"run the command without --yes again", "east  Deployment shop/forbidden: ", "east  Deployment shop/invalid: "} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	if err != nil && strings.Count(err.Error(), "Deployment") != 2 {
		t.Errorf("got %v, want two Works in the message", err)
	}
	if want := `{"metadata":{"annotations":{"placement.patchbay.io/resume":"hub:hub/e/5/10:hub/e/5/7"},"uid":"u1"}}`; patches["web"][0] != want || len(patches["busy"]) != 2 {
		t.Errorf("got the patches %q, want %q, and two of busy", patches, want)
	}
}

// After an interrupt the writes in flight complete and are counted.
func TestAnswersThatAreInterrupted(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var once sync.Once
	c := fakeHub(t, interceptor.Funcs{
		Patch: func(ctx context.Context, _ client.WithWatch, _ client.Object, _ client.Patch, _ ...client.PatchOption) error {
			once.Do(cancel)
			return ctx.Err()
		},
	})
	var asked []v1alpha1.Work
	for i := range 100 {
		asked = append(asked, workOf("east", fmt.Sprintf("w%d", i), &v1alpha1.HaltedWork{Record: "r"}, nil))
	}
	var out bytes.Buffer
	err := (&resumption{take: v1alpha1.TakeHub}).answer(ctx, c, asked, 0, &out)
	var n int
	if _, scanErr := fmt.Sscanf(out.String(), "%d of 100 Works are answered", &n); scanErr != nil || n < 1 || n > 3*maxConcurrentAnswers {
		t.Errorf("got %q, %v, want few answers", out.String(), scanErr)
	}
	if err == nil || !strings.Contains(err.Error(), "interrupted before the others") || strings.Contains(err.Error(), "shop/") {
		t.Errorf("got %v, want one line for all other Works", err)
	}
}

// All pages are read, and the manifests of Works are dropped.
func TestHaltedWorksOfManyPages(t *testing.T) {
	t.Parallel()
	var asked []string
	c := fakeHub(t, interceptor.Funcs{
		List: func(_ context.Context, _ client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			works, ok := list.(*v1alpha1.WorkList)
			if !ok {
				return errors.New("want Works only")
			}
			o := (&client.ListOptions{}).ApplyOptions(opts)
			asked = append(asked, fmt.Sprintf("%s %d %q", o.Namespace, o.Limit, o.Continue))
			fine, w := workOf("east", "fine", nil, nil), workOf("east", "b"+o.Continue, &v1alpha1.HaltedWork{Record: "r"}, nil)
			w.Spec.Manifests = []v1alpha1.Manifest{{Resource: "deployments"}}
			if works.Items = []v1alpha1.Work{w, fine}; len(asked) < 3 {
				works.Continue = fmt.Sprint(5 - len(asked))
			}
			return nil
		},
	})
	found, err := (&resumption{cluster: "east"}).list(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for i := range found.halted {
		w := &found.halted[i]
		names = append(names, w.Name)
		if w.Spec.Manifests != nil || w.UID != "u1" || w.Spec.Position() != "hub/e/5/7" {
			t.Errorf("got %+v, want UID and position, and no manifests", w)
		}
	}
	if found.notHalted["east"] != 3 {
		t.Errorf("Works that are not halted: got %v, want one of each page", found.notHalted)
	}
	if diff := cmp.Diff([]string{"b", "b3", "b4"}, names); diff != "" {
		t.Errorf("Works: -want +got\n%s", diff)
	}
	if diff := cmp.Diff([]string{`cluster-east 500 ""`, `cluster-east 500 "4"`, `cluster-east 500 "3"`}, asked); diff != "" {
		t.Errorf("lists: -want +got\n%s", diff)
	}
}
