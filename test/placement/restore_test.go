// SPDX-License-Identifier: Apache-2.0

//go:build placement

package placement

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/test/lab/controlplane"
	"github.com/patchbay-cni/patchbay/test/lab/process"
	"github.com/patchbay-cni/patchbay/test/placement/bed"
)

// KubeStellar, independent operation: a hub that is restored from an older backup of its
// etcd, and one that comes up empty, delete nothing and change nothing: HubMismatch.
func TestKubeStellarHubRestored(t *testing.T) {
	t.Parallel()
	w := another(t)
	ns := w.namespace(t)
	log, err := w.Clusters["east"].AuditLog()
	if err != nil {
		t.Fatal(err)
	}
	w.apply(t, w.Hub.Client, ns, deployment("web", 2, "east", "")+"---\n"+settings("early", "east"))
	w.available(t, ns, "web", 2)
	early, late := object("v1", "ConfigMap", ns, "early"), object("v1", "ConfigMap", ns, "late")
	w.awaitWhere(t, early, "east")

	backup := filepath.Join(t.TempDir(), "etcd")
	w.offline(t, func() error { return os.CopyFS(backup, os.DirFS(w.Hub.Control.EtcdData())) })
	w.scale(t, ns, 3)
	w.apply(t, w.Hub.Client, ns, settings("late", "east"))
	w.awaitReplicas(t, ns, map[string]int32{"east": 3})
	w.awaitWhere(t, late, "east")
	w.replace(t, func(data string) error { return os.CopyFS(data, os.DirFS(backup)) })
	w.awaitMismatch(t)

	if err := w.hub.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.replace(t, func(data string) error { return os.Mkdir(data, 0o700) })
	w.restartHub(t)
	if err := w.Accept(t.Context(), "east", v1alpha1.ClusterSpec{}); err != nil {
		t.Fatal(err)
	}
	other := w.namespace(t)
	w.apply(t, w.Hub.Client, other, settings("other", "east"))
	w.awaitMismatch(t)

	w.awaitReplicas(t, ns, map[string]int32{"east": 3})
	for _, o := range []client.Object{early, late} {
		if got := w.where(t, o); got != "east" {
			t.Errorf("%s: is in %q, want it kept", o.GetName(), got)
		}
	}
	if got := w.where(t, object("v1", "ConfigMap", other, "other")); got != "" {
		t.Errorf("other: is in %q, want nothing written for a hub that is not the one", got)
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

// replace puts other data into the hub's etcd.
func (w *world) replace(t *testing.T, fill func(data string) error) {
	t.Helper()
	data := w.Hub.Control.EtcdData()
	w.offline(t, func() error {
		if err := os.RemoveAll(data); err != nil {
			return err
		}
		return fill(data)
	})
}

// awaitMismatch waits until the hub knows that east does not obey it.
func (w *world) awaitMismatch(t *testing.T) {
	t.Helper()
	eventually(t, "east says HubMismatch", func() error {
		c := &v1alpha1.Cluster{}
		if err := w.Hub.Client.Get(t.Context(), client.ObjectKey{Name: "east"}, c); err != nil {
			return err
		}
		if !meta.IsStatusConditionTrue(c.Status.Conditions, v1alpha1.ConditionHubMismatch) {
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
