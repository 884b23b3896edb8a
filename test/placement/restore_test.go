// SPDX-License-Identifier: Apache-2.0

//go:build placement

package placement

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/test/lab/controlplane"
	"github.com/patchbay-cni/patchbay/test/lab/process"
	"github.com/patchbay-cni/patchbay/test/placement/bed"
)

// KubeStellar, independent operation: a hub that is restored from an older backup of its
// etcd, also one that is edited until its revisions overtake what agents have seen, and one
// that comes up empty, delete nothing and change nothing. One command lets the cluster go on,
// each time, and nothing is deleted or made again by that either.
func TestKubeStellarHubRestored(t *testing.T) {
	t.Parallel()
	w := another(t)
	ns := w.namespace(t)
	x := watch(t, w, ns)
	log, err := w.Clusters["east"].AuditLog()
	if err != nil {
		t.Fatal(err)
	}
	w.apply(t, w.Hub.Client, ns, deployment("web", 2, "east", "")+"---\n"+settings("early", "east"))
	w.available(t, ns, "web", 2)
	early, late := object("v1", "ConfigMap", ns, "early"), object("v1", "ConfigMap", ns, "late")
	w.awaitWhere(t, early, "east")

	backup, then := filepath.Join(t.TempDir(), "etcd"), x.live(t, w)
	w.offline(t, func() error { return os.CopyFS(backup, os.DirFS(w.Hub.Control.EtcdData())) })
	w.scale(t, ns, 3)
	w.apply(t, w.Hub.Client, ns, settings("late", "east"))
	w.awaitReplicas(t, ns, map[string]int32{"east": 3})
	w.awaitWhere(t, late, "east")
	web := object("apps/v1", "Deployment", ns, "web")
	w.where(t, web)
	uid := web.GetUID()

	w.replace(t, x, then, func(data string) error { return os.CopyFS(data, os.DirFS(backup)) })
	w.awaitMismatch(t, true)
	for n := range 4 { // its revisions overtake what the agent has seen
		w.scale(t, ns, 4+n)
	}
	eventually(t, "the hub has sent the last edit", func() error { return w.asked(t, ns, 7) })
	w.awaitMismatch(t, true)
	w.awaitReplicas(t, ns, map[string]int32{"east": 3})
	hub := &terminal{t: t, dir: t.TempDir()}
	admin := w.Hub.Control.AdminKubeconfig()
	printed := hub.sh(admin, "kubectl patchbay hub resume --take=cluster")
	if !strings.Contains(printed, "Deployment "+ns+"/web: stays as it is in east") || !strings.Contains(printed, "spec.replicas: 3 in the cluster, 7 at the hub") {
		t.Errorf("resume: got %s, want what differs", printed)
	}
	w.awaitMismatch(t, true) // that was a dry run
	hub.sh(admin, "kubectl patchbay hub resume --take=cluster --yes")
	w.awaitMismatch(t, false)
	w.awaitReplicas(t, ns, map[string]int32{"east": 3})
	w.scale(t, ns, 4) // and the hub goes on
	w.awaitReplicas(t, ns, map[string]int32{"east": 4})

	if err := w.hub.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.replace(t, x, nil, func(data string) error { return os.Mkdir(data, 0o700) })
	w.restartHub(t)
	if err := w.Accept(t.Context(), "east", v1alpha1.ClusterSpec{}); err != nil {
		t.Fatal(err)
	}
	if err := w.Hub.Client.Create(t.Context(), object("v1", "Namespace", "", ns)); err != nil {
		t.Fatal(err)
	}
	w.apply(t, w.Hub.Client, ns, deployment("web", 4, "east", "")) // what was there is applied again
	w.awaitMismatch(t, true)
	w.apply(t, w.Hub.Client, ns, settings("other", "east"))
	hub.resume(admin, "--in=east --take=hub")
	w.awaitMismatch(t, false)
	w.awaitWhere(t, object("v1", "ConfigMap", ns, "other"), "east")
	w.available(t, ns, "web", 4)

	w.awaitReplicas(t, ns, map[string]int32{"east": 4})
	for _, o := range []client.Object{early, late} {
		if got := w.where(t, o); got != "east" {
			t.Errorf("%s: is in %q, want it kept", o.GetName(), got)
		}
	}
	if w.where(t, web); web.GetUID() != uid {
		t.Errorf("web: got UID %s, want %s: it is the same object", web.GetUID(), uid)
	}
	writes, err := log.Writes()
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range writes {
		if one.User == bed.AgentUser && one.Verb == "delete" {
			t.Errorf("deleted: %s", one)
		}
	}
}

// asked is an error until the hub asks east for so many replicas of web.
func (w *world) asked(t *testing.T, ns string, n int64) error {
	t.Helper()
	works := &v1alpha1.WorkList{}
	if err := w.Hub.Client.List(t.Context(), works); err != nil {
		return err
	}
	for _, one := range works.Items {
		if one.Spec.Source.Namespace != ns || one.Spec.Source.Name != "web" {
			continue
		}
		o := &unstructured.Unstructured{}
		if err := o.UnmarshalJSON(one.Spec.Manifests[0].Object.Raw); err != nil {
			return err
		}
		if got, _, _ := unstructured.NestedInt64(o.Object, "spec", "replicas"); got != n {
			return fmt.Errorf("it asks for %d", got)
		}
		return nil
	}
	return errors.New("there is no Work")
}

// another is a world of its own, with the cluster east.
func another(t *testing.T) *world {
	t.Helper()
	b, err := bed.Launch(t.Context(), bed.Config{Clusters: []string{"east"}, Programs: *programs})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			b.Keep()
			t.Log("logs are in", b.Dir)
		}
		if err := b.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	w := &world{Bed: b, agents: map[string]process.ID{}}
	if err := w.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return w
}

// offline does something while neither the hub's API server nor its etcd runs.
func (w *world) offline(t *testing.T, do func() error) {
	t.Helper()
	c := w.Hub.Control
	for _, part := range []controlplane.Part{controlplane.APIServer, controlplane.Etcd} {
		if err := c.StopPart(t.Context(), part); err != nil {
			t.Fatal(err)
		}
	}
	if err := do(); err != nil {
		t.Fatal(err)
	}
	for _, part := range []controlplane.Part{controlplane.Etcd, controlplane.APIServer} {
		if err := c.StartPart(t.Context(), part); err != nil {
			t.Fatal(err)
		}
	}
}

// replace puts other data into the hub's etcd. A hub that has them is what it was then.
func (w *world) replace(t *testing.T, x *watcher, then []write, fill func(data string) error) {
	t.Helper()
	data, now := w.Hub.Control.EtcdData(), x.live(t, w)
	w.offline(t, func() error {
		x.anew(t, then, now)
		if err := os.RemoveAll(data); err != nil {
			return err
		}
		return fill(data)
	})
}

// awaitMismatch waits until the hub knows whether east has halted some Works.
func (w *world) awaitMismatch(t *testing.T, want bool) {
	t.Helper()
	eventually(t, fmt.Sprintf("HubMismatch of east is %t", want), func() error {
		c := &v1alpha1.Cluster{}
		if err := w.Hub.Client.Get(t.Context(), client.ObjectKey{Name: "east"}, c); err != nil {
			return err
		}
		found := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ConditionHubMismatch)
		if found == nil || (found.Status == metav1.ConditionTrue) != want {
			return fmt.Errorf("conditions %+v", c.Status.Conditions)
		}
		return nil
	})
}

// settings is a ConfigMap for these clusters.
func settings(name, clusters string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: ConfigMap
metadata: {name: %s, annotations: {placement.patchbay.io/clusters: %q}}
data: {a: b}
`, name, clusters)
}
