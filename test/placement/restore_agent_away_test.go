// SPDX-License-Identifier: Apache-2.0

//go:build placement

package placement

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// Safety 4, hub term: an agent is away while the hub is restored, edited until its revisions
// overtake what the agent has seen, and resumed. The command names its cluster. When the agent is
// back it halts what does not fit, and the command run again answers that: nothing is deleted, and
// no Pod restarts.
func TestSafetyAgentAwayMeanwhile(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ns := w.namespace(t)
	x := checkInvariants(t, w, ns)
	log, err := w.Clusters["east"].AuditLog()
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Replace(deployment("web", 2, "east", ""), "  name: web\n", "  name: web\n  labels: {state: early}\n", 1)
	w.apply(t, w.Hub.Client, ns, text+"---\n"+settings("config", "east"))
	w.awaitHubAvailable(t, ns, "web", 2)
	web, config := object("apps/v1", "Deployment", ns, "web"), object("v1", "ConfigMap", ns, "config")
	edit := func(state string) { // not of the replicas: a cluster that does not report gets no more of them
		t.Helper()
		patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"state":"`+state+`"}}}`))
		if err := w.Hub.Client.Patch(t.Context(), sameKey(web), patch); err != nil {
			t.Fatal(err)
		}
	}
	w.awaitClustersWith(t, config, "east")
	backup, then := filepath.Join(t.TempDir(), "etcd"), x.liveObjects(t, w)
	w.whileHubStopped(t, func() error { return os.CopyFS(backup, os.DirFS(w.Hub.ControlPlane.EtcdData())) })
	edit("late")
	w.awaitState(t, []client.Object{web}, "late")
	w.clustersWith(t, web)
	uids, pods := []any{web.GetUID(), config.GetUID()}, w.podsInEast(t, ns)

	if err := w.agents["east"].Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.replaceEtcdData(t, x, then, func(data string) error { return os.CopyFS(data, os.DirFS(backup)) })
	w.awaitUnreachable(t)
	for _, state := range []string{"restored", "again", "past"} {
		edit(state)
		w.awaitOrdered(t, web, `"state":"`+state+`"`)
	}
	if err := w.Hub.Client.Delete(t.Context(), object("v1", "ConfigMap", ns, "config")); err != nil {
		t.Fatal(err)
	}

	hub, admin := &terminal{t: t, dir: t.TempDir()}, w.Hub.ControlPlane.AdminKubeconfig()
	printed := hub.run(admin, "kubectl patchbay hub resume --take=cluster --yes")
	for _, want := range []string{
		"east does not report: it has Works that may be halted when it is back (2): run the command again then\n",
		"no Work is halted: there is nothing to answer. Clusters that do not report: 1\n",
	} {
		if !strings.Contains(printed, want) {
			t.Errorf("resume while the agent is away: got %s, want %q", printed, want)
		}
	}

	if w.agents["east"], err = w.StartAgent(t.Context(), "east"); err != nil {
		t.Fatal(err)
	}
	w.awaitMismatch(t, true)
	eventually(t, "the Work of web is listed", func() error {
		printed = hub.run(admin, "kubectl patchbay hub resume --take=cluster")
		return errorUnless(strings.Contains(printed, "Deployment "+ns+"/web: stays as it is in east\n      metadata.labels.state: \"late\" in the cluster, \"past\" at the hub\n") &&
			!strings.Contains(printed, "does not report"), "got %s", printed)
	})
	w.awaitState(t, []client.Object{web}, "late")
	if got := w.clustersWith(t, config); got != "east" {
		t.Errorf("config: is in %q, want it kept while a Work is halted", got)
	}
	checkNoDeletion(t, log)
	w.clustersWith(t, web)
	if diff := cmp.Diff(uids, []any{web.GetUID(), config.GetUID()}); diff != "" {
		t.Errorf("UIDs in east: -before +after\n%s", diff)
	}
	hub.run(admin, "kubectl patchbay hub resume --take=cluster --yes")
	w.awaitMismatch(t, false)
	w.awaitState(t, []client.Object{web}, "late")
	if diff := cmp.Diff(pods, w.podsInEast(t, ns)); diff != "" {
		t.Errorf("Pods in east: -before +after\n%s", diff)
	}
	w.awaitClustersWith(t, config, "") // it was deleted at the hub after the restore: that order counts now
	edit("next")
	w.awaitState(t, []client.Object{web}, "next")
}

// awaitOrdered waits until the Work of an object in east has a manifest with a text.
func (w *world) awaitOrdered(t *testing.T, o client.Object, text string) {
	t.Helper()
	gvk := o.GetObjectKind().GroupVersionKind()
	key := client.ObjectKey{Namespace: v1alpha1.ClusterNamespacePrefix + "east", Name: v1alpha1.WorkName(gvk.Group, gvk.Kind, o.GetNamespace(), o.GetName())}
	eventually(t, "the Work of "+printedName(o)+" has "+text, func() error {
		work := &v1alpha1.Work{}
		if err := w.Hub.Client.Get(t.Context(), key, work); err != nil {
			return err
		}
		raw := string(work.Spec.Manifests[0].Object.Raw)
		return errorUnless(strings.Contains(raw, text), "got %s", raw)
	})
}

// awaitUnreachable waits until the hub knows that east does not report.
func (w *world) awaitUnreachable(t *testing.T) {
	t.Helper()
	eventually(t, "east is not reachable", func() error {
		c := &v1alpha1.Cluster{}
		if err := w.Hub.Client.Get(t.Context(), client.ObjectKey{Name: "east"}, c); err != nil {
			return err
		}
		return errorUnless(meta.IsStatusConditionFalse(c.Status.Conditions, v1alpha1.ConditionReachable), "conditions %+v", c.Status.Conditions)
	})
}
