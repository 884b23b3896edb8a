// SPDX-License-Identifier: Apache-2.0

//go:build placement

package placement

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/test/placement/bed"
)

// KubeStellar, independent operation: a hub that is restored from an older backup of its
// etcd, also one that is edited until its revisions overtake what agents have seen, and one
// that comes up empty, delete nothing and change nothing. One command lets the cluster go on,
// each time, and nothing is deleted or made again by that either.
func TestKubeStellarHubRestored(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ns := w.namespace(t)
	x := checkInvariants(t, w, ns)
	log, err := w.Clusters["east"].AuditLog()
	if err != nil {
		t.Fatal(err)
	}
	w.apply(t, w.Hub.Client, ns, deployment("web", 2, "east", "")+"---\n"+settings("early", "east"))
	w.awaitHubAvailable(t, ns, "web", 2)
	early, late := object("v1", "ConfigMap", ns, "early"), object("v1", "ConfigMap", ns, "late")
	w.awaitClustersWith(t, early, "east")

	backup, then := filepath.Join(t.TempDir(), "etcd"), x.liveObjects(t, w)
	w.whileHubStopped(t, func() error { return os.CopyFS(backup, os.DirFS(w.Hub.ControlPlane.EtcdData())) })
	w.scale(t, ns, 3)
	w.apply(t, w.Hub.Client, ns, settings("late", "east"))
	w.awaitReplicas(t, ns, map[string]int32{"east": 3})
	w.awaitClustersWith(t, late, "east")
	web := object("apps/v1", "Deployment", ns, "web")
	w.clustersWith(t, web)
	uid := web.GetUID()

	w.replaceEtcdData(t, x, then, func(data string) error { return os.CopyFS(data, os.DirFS(backup)) })
	w.awaitMismatch(t, true)
	for n := range 4 { // its revisions overtake what the agent has seen
		w.scale(t, ns, 4+n)
	}
	eventually(t, "the hub has sent the last edit", func() error { return w.checkHubReplicas(t, ns, 7) })
	w.awaitMismatch(t, true)
	w.awaitReplicas(t, ns, map[string]int32{"east": 3})
	hub := &terminal{t: t, dir: t.TempDir()}
	admin := w.Hub.ControlPlane.AdminKubeconfig()
	printed := hub.run(admin, "kubectl patchbay hub resume --take=cluster")
	if !strings.Contains(printed, "Deployment "+ns+"/web: stays as it is in east") || !strings.Contains(printed, "spec.replicas: 3 in the cluster, 7 at the hub") {
		t.Errorf("resume: got %s, want what differs", printed)
	}
	w.awaitMismatch(t, true) // that was a dry run
	hub.run(admin, "kubectl patchbay hub resume --take=cluster --yes")
	w.awaitMismatch(t, false)
	w.awaitReplicas(t, ns, map[string]int32{"east": 3})
	w.scale(t, ns, 4) // and the hub goes on
	w.awaitReplicas(t, ns, map[string]int32{"east": 4})

	if err := w.hub.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.replaceEtcdData(t, x, nil, func(data string) error { return os.Mkdir(data, 0o700) })
	w.restartHub(t)
	if err := w.CreateCluster(t.Context(), "east", v1alpha1.ClusterSpec{}); err != nil {
		t.Fatal(err)
	}
	if err := w.Hub.Client.Create(t.Context(), object("v1", "Namespace", "", ns)); err != nil {
		t.Fatal(err)
	}
	w.apply(t, w.Hub.Client, ns, deployment("web", 4, "east", "")) // what was there is applied again
	w.awaitMismatch(t, true)
	w.apply(t, w.Hub.Client, ns, settings("other", "east"))
	hub.resume(admin, "--for-cluster=east --take=hub")
	w.awaitMismatch(t, false)
	w.awaitClustersWith(t, object("v1", "ConfigMap", ns, "other"), "east")
	w.awaitHubAvailable(t, ns, "web", 4)

	w.awaitReplicas(t, ns, map[string]int32{"east": 4})
	for _, o := range []client.Object{early, late} {
		if got := w.clustersWith(t, o); got != "east" {
			t.Errorf("%s: is in %q, want it kept", o.GetName(), got)
		}
	}
	if w.clustersWith(t, web); web.GetUID() != uid {
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

// checkHubReplicas is an error until the hub asks east for so many replicas of web.
func (w *world) checkHubReplicas(t *testing.T, ns string, n int64) error {
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

// settings is a ConfigMap for these clusters.
func settings(name, clusters string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: ConfigMap
metadata: {name: %s, annotations: {placement.patchbay.io/clusters: %q}}
data: {a: b}
`, name, clusters)
}
