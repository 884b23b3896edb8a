// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package kubectl

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/hub"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

// hubBench starts an API server with the placement kinds. It returns a client and a function that runs
// the plugin.
func hubBench(t *testing.T) (client.Client, func(args ...string) (string, error)) {
	t.Helper()
	env := apitest.New(t) // one test only: the verb lists the Works of all clusters
	if err := hub.Install(t.Context(), env.Config); err != nil {
		t.Fatal(err)
	}
	c, err := adminFactory(env).unthrottledPlacementClient()
	if err != nil {
		t.Fatal(err)
	}
	cache := t.TempDir() // discovery
	return c, func(args ...string) (string, error) {
		var out bytes.Buffer
		err := Run(t.Context(), append(args, "--kubeconfig="+env.ControlPlane.AdminKubeconfig(), "--cache-dir="+cache), &out, &out)
		return out.String(), err
	}
}

// halted creates a Work with the status that an agent reports.
func halted(ctx context.Context, c client.Client, cluster, name string, removal bool, h *v1alpha1.HaltedWork) error {
	w := &v1alpha1.Work{
		ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.ClusterNamespacePrefix + cluster, Name: name},
		Spec: v1alpha1.WorkSpec{
			HubUID: "hub", Epoch: "e", Term: 9, Revision: 1,
			Source:    v1alpha1.ObjectReference{Group: "apps", Version: "v1", Kind: "Deployment", Resource: "deployments", Namespace: "shop", Name: name, UID: "u"},
			Manifests: []v1alpha1.Manifest{{Resource: "deployments", Object: runtime.RawExtension{Raw: []byte(`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web"}}`)}}},
		},
	}
	if removal {
		w.Spec.Removal = &v1alpha1.Removal{Policy: v1alpha1.OnDeleteDelete, SourceUID: "u"}
	}
	if err := c.Create(ctx, w); err != nil {
		return err
	}
	if w.Status.Halted = h; h != nil && h.Record != "" {
		h.Work = w.Spec.Position()
	}
	return c.Status().Update(ctx, w)
}

// One command answers the Works of all clusters or of one, and lists the effects before.
func TestResume(t *testing.T) {
	t.Parallel()
	c, do := hubBench(t)
	for _, cluster := range []string{"east", "west"} {
		for _, o := range []client.Object{
			&v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: cluster}, Spec: v1alpha1.ClusterSpec{Accepted: true}},
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.ClusterNamespacePrefix + cluster}},
		} {
			if err := c.Create(t.Context(), o); err != nil {
				t.Fatal(err)
			}
		}
	}
	if out, err := do("hub", "resume", "--take=hub"); err != nil || !strings.Contains(out, "no Work is halted") {
		t.Errorf("nothing halted: got %q, %v", out, err)
	}
	if _, err := do("hub", "resume", "--take=hub", "--for-cluster=north"); err == nil || !strings.Contains(err.Error(), `there is no Cluster "north"`) {
		t.Errorf("unknown cluster: got %v", err)
	}
	const record = "hub/e/5/10"
	for name, h := range map[string]*v1alpha1.HaltedWork{
		"web": {Record: record, Differences: []string{"Deployment shop/web: spec.replicas: 3 in the cluster, 2 at the hub"}}, "new": {}, "old": {Record: record}, "fine": nil,
	} {
		if err := halted(t.Context(), c, "east", name, name == "old", h); err != nil {
			t.Fatal(err)
		}
	}
	if err := halted(t.Context(), c, "west", "web", false, &v1alpha1.HaltedWork{Record: "hub/e/5/11"}); err != nil {
		t.Fatal(err)
	}
	answers := func() string {
		var list v1alpha1.WorkList
		if err := c.List(t.Context(), &list); err != nil {
			t.Fatal(err)
		}
		var found []string
		for _, w := range list.Items {
			if text := w.Annotations[v1alpha1.ResumeAnnotation]; text != "" {
				found = append(found, w.Namespace+"/"+w.Name+" "+text)
			}
		}
		return strings.Join(found, ", ")
	}
	out, err := do("hub", "resume", "--take=hub", "--for-cluster=east")
	for _, want := range []string{
		"east  Deployment shop/web: becomes in east what the hub says\n      spec.replicas: 3 in the cluster, 2 at the hub\n",
		"east  Deployment shop/old: is removed from east\n", "east  Deployment shop/new: is created in east when the others are answered\n",
		"east does not report: the answer reaches it when it is back\n",
		"east does not report: it has Works that may be halted when it is back (1): run the command again then\n",
		"Works that are halted: 2 (changed: 1, removed: 1). Works that wait for them: 1. Clusters that do not report: 1\n",
		"Nothing was changed. To answer them: kubectl patchbay hub resume --take=hub --for-cluster=east --kubeconfig=",
	} {
		if err != nil || !strings.Contains(out, want) {
			t.Errorf("dry run: got %q, %v, want %q", out, err, want)
		}
	}
	digest := digestIn(t, out)
	if strings.Contains(out, "fine") || strings.Contains(out, "west") || answers() != "" {
		t.Errorf("dry run: got %q and answers %q, want only the halted Works of east, and no answers", out, answers())
	}
	if out, err := do("hub", "resume", "--take=cluster", "--for-cluster=east", "--yes"); err != nil || !strings.Contains(out, "2 of 2 Works are answered; clusters that do not report: 1\n") {
		t.Errorf("east: got %q, %v", out, err)
	}
	if got, want := answers(), "cluster-east/old cluster:hub/e/5/10:hub/e/9/1, cluster-east/web cluster:hub/e/5/10:hub/e/9/1"; got != want {
		t.Errorf("answers: got %q, want %q", got, want)
	}
	before := answers()
	for reason, args := range map[string][]string{
		"flag --confirm: must be there with --take=hub --yes: ":    {"--yes"},
		"flag --confirm: must be there with --take=hub --yes only": {"--confirm=" + digest},
		"the Works that are halted have changed since " + digest:   {"--yes", "--confirm=" + digest}, // the list was without west
	} {
		if out, err := do(append([]string{"hub", "resume", "--take=hub"}, args...)...); err == nil || !strings.Contains(err.Error(), reason) {
			t.Errorf("%v: got %q, %v, want %q", args, out, err, reason)
		}
	}
	if got := answers(); got != before {
		t.Errorf("answers: got %q, want %q", got, before)
	}
	if out, err := do("hub", "resume", "--take=hub", "--for-cluster=east", "--yes", "--confirm="+digest); err != nil || !strings.Contains(out, "2 of 2 Works are answered") {
		t.Errorf("the listed Works: got %q, %v", out, err)
	}
	out, err = do("hub", "resume", "--take=hub")
	if err != nil {
		t.Fatal(err)
	}
	if out, err := do("hub", "resume", "--take=hub", "--yes", "--confirm="+digestIn(t, out)); err != nil || !strings.Contains(out, "3 of 3 Works are answered") {
		t.Errorf("all: got %q, %v", out, err)
	}
	if got, want := answers(), "cluster-east/old hub:hub/e/5/10:hub/e/9/1, cluster-east/web hub:hub/e/5/10:hub/e/9/1, cluster-west/web hub:hub/e/5/11:hub/e/9/1"; got != want {
		t.Errorf("answers: got %q, want %q", got, want)
	}
	stale := []v1alpha1.Work{workOf("west", "web", &v1alpha1.HaltedWork{Record: "x"}, nil), workOf("west", "gone", &v1alpha1.HaltedWork{Record: "x"}, nil)}
	var printed bytes.Buffer
	if err := (&resumption{take: v1alpha1.TakeHub}).answer(t.Context(), c, stale, 0, &printed); err != nil || printed.String() != "0 of 2 Works are answered; deleted meanwhile: 2\n" {
		t.Errorf("a Work of another UID, and none: got %q, %v", printed.String(), err)
	}
	if got, want := answers(), "cluster-east/old hub:hub/e/5/10:hub/e/9/1, cluster-east/web hub:hub/e/5/10:hub/e/9/1, cluster-west/web hub:hub/e/5/11:hub/e/9/1"; got != want {
		t.Errorf("answers after that: got %q, want %q", got, want)
	}
}

// digestIn returns the value of --confirm in the command that a dry run prints.
func digestIn(t *testing.T, printed string) string {
	t.Helper()
	_, digest, ok := strings.Cut(strings.TrimSpace(printed), " --yes --confirm=")
	if !ok {
		t.Fatalf("got %.500q, want a command with --confirm", printed)
	}
	return digest
}

// One command answers a thousand Works, and the client does not throttle it.
func TestResumeOfManyWorks(t *testing.T) {
	t.Parallel()
	c, do := hubBench(t)
	if err := c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "cluster-many"}}); err != nil {
		t.Fatal(err)
	}
	const works = 1000
	var g errgroup.Group
	g.SetLimit(16)
	for i := range works {
		g.Go(func() error {
			return halted(t.Context(), c, "many", fmt.Sprintf("w%04d", i), false, &v1alpha1.HaltedWork{Record: "hub/e/5/10"})
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	listed, err := do("hub", "resume", "--take=hub")
	if err != nil {
		t.Fatal(err)
	}
	out, err := do("hub", "resume", "--take=hub", "--yes", "--confirm="+digestIn(t, listed))
	if err != nil || !strings.Contains(out, "1000 of 1000 Works are answered") {
		t.Errorf("got %.500q, %v", out, err)
	}
	t.Logf("%d Works in %s", works, time.Since(began))
}
