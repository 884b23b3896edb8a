// SPDX-License-Identifier: Apache-2.0

//go:build placement

package placement

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/render"
)

// Safety 1: a policy that is replaced by force, deleted, or that no longer selects what it
// placed removes nothing, as its users do these things: each object keeps its UID.
func TestSafetyLostPolicy(t *testing.T) {
	t.Parallel()
	w := shared
	ns := w.namespace(t)
	watch(t, w, ns)
	policy := placement("p", "east, west")
	w.apply(t, w.Hub.Client, ns, policy+"---\n"+plain("web", 4)+"---\n"+strings.ReplaceAll(settings("config", ""), `, annotations: {placement.patchbay.io/clusters: ""}`, "")+daemonSet)
	w.available(t, ns, "web", 4)
	objects := []client.Object{
		object("apps/v1", "Deployment", ns, "web"), object("v1", "ConfigMap", ns, "config"), object("apps/v1", "DaemonSet", ns, "node"),
	}
	for _, o := range objects {
		w.awaitWhere(t, o, "east,west")
	}
	before := w.uids(t, objects)
	user := &terminal{t: t, dir: t.TempDir()}
	admin, file := w.Hub.Control.AdminKubeconfig(), filepath.Join(user.dir, "policy.yaml")
	if err := os.WriteFile(file, []byte(policy), 0o600); err != nil {
		t.Fatal(err)
	}
	kubectl := func(args string) { user.sh(admin, "kubectl -n "+ns+" "+args) }
	for range 3 {
		kubectl("replace --force -f " + file)
	}
	kubectl("delete placements.placement.patchbay.io/p")
	for _, o := range objects {
		w.placed(t, o, v1alpha1.ReasonNoPolicy)
	}
	kubectl("apply -f " + file) // as GitOps makes it again
	for _, o := range objects {
		w.placed(t, o, v1alpha1.ReasonSettled)
	}
	if after := w.uids(t, objects); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("UIDs: got %v, want %v", after, before)
	}
	kubectl("delete placements.placement.patchbay.io/p")
	w.placed(t, objects[1], v1alpha1.ReasonNoPolicy)
	user.sh(admin, "kubectl patchbay remove configmap/config --yes -n "+ns)
	w.awaitWhere(t, objects[1], "")
	w.awaitWhere(t, objects[0], "east,west")
}

const daemonSet = `---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: node}
spec:
  selector: {matchLabels: {app: node}}
  template:
    metadata: {labels: {app: node}}
    spec:
      containers: [{name: c, image: "registry.example/app:1"}]
`

// uids are those of objects, in each cluster that has them.
func (w *world) uids(t *testing.T, objects []client.Object) map[string]types.UID {
	t.Helper()
	found := map[string]types.UID{}
	for _, o := range objects {
		for name, c := range w.Clusters {
			if err := c.Client.Get(t.Context(), client.ObjectKeyFromObject(o), o); err == nil {
				found[name+" "+o.GetName()] = o.GetUID()
			} else if client.IgnoreNotFound(err) != nil {
				t.Fatal(err)
			}
		}
	}
	return found
}

// placed waits until the condition Placed of an object's Assignment has a reason.
func (w *world) placed(t *testing.T, o client.Object, reason string) {
	t.Helper()
	gvk := o.GetObjectKind().GroupVersionKind()
	key := client.ObjectKey{Namespace: o.GetNamespace(), Name: render.Name(gvk.Group, gvk.Kind, o.GetNamespace(), o.GetName())}
	eventually(t, fmt.Sprintf("%s says %s", o.GetName(), reason), func() error {
		a := &v1alpha1.Assignment{}
		if err := w.Hub.Client.Get(t.Context(), key, a); err != nil {
			return err
		}
		c := meta.FindStatusCondition(a.Status.Conditions, v1alpha1.ConditionPlaced)
		return unless(c != nil && c.Reason == reason, "%+v", c)
	})
}

// Safety 3: a workload with a volume claim does not leave its cluster, and its claim stays when
// the workload is deleted, also after the claim is deleted at the hub.
func TestSafetyVolumeClaims(t *testing.T) {
	t.Parallel()
	w := shared
	ns := w.namespace(t)
	watch(t, w, ns)
	w.apply(t, w.Hub.Client, ns, `
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
---
`+strings.Replace(deployment("web", 1, "east", ""), "      containers:", "      volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]\n      containers:", 1))
	web, data := object("apps/v1", "Deployment", ns, "web"), object("v1", "PersistentVolumeClaim", ns, "data")
	w.awaitWhere(t, web, "east")
	w.awaitWhere(t, data, "east")
	uid := data.GetUID()
	w.annotate(t, object("apps/v1", "Deployment", ns, "web"), "west")
	w.placed(t, web, v1alpha1.ReasonVolumesRefused)
	w.remove(t, object("apps/v1", "Deployment", ns, "web"))
	w.awaitWhere(t, web, "")
	w.remove(t, object("v1", "PersistentVolumeClaim", ns, "data"))
	eventually(t, "the hub has let the claim go", func() error { return w.forgotten(t, data) })
	if got := w.where(t, data); got != "east" || data.GetUID() != uid {
		t.Errorf("claim: is in %q with UID %s, want it kept in east with %s", got, data.GetUID(), uid)
	}
	checkLetGo(t, data)
}

// Safety 5: a removal that a finalizer holds is reported at the hub, with the finalizer.
func TestSafetyHeldRemoval(t *testing.T) {
	t.Parallel()
	w := shared
	ns := w.namespace(t)
	watch(t, w, ns)
	w.apply(t, w.Hub.Client, ns, settings("held", "east"))
	held := object("v1", "ConfigMap", ns, "held")
	w.awaitWhere(t, held, "east")
	finalizers := func(list string) {
		t.Helper()
		patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":`+list+`}}`))
		if err := w.Clusters["east"].Client.Patch(t.Context(), held, patch, client.FieldOwner("other")); err != nil {
			t.Fatal(err)
		}
	}
	finalizers(`["example.com/held"]`)
	w.annotate(t, object("v1", "ConfigMap", ns, "held"), "")
	eventually(t, "the Assignment says what holds it", func() error {
		a := &v1alpha1.Assignment{}
		key := client.ObjectKey{Namespace: ns, Name: render.Name("", "ConfigMap", ns, "held")}
		if err := w.Hub.Client.Get(t.Context(), key, a); err != nil {
			return err
		}
		return unless(len(a.Status.Clusters) == 1 && strings.Contains(a.Status.Clusters[0].Message, "example.com/held"), "%+v", a.Status.Clusters)
	})
	finalizers("null")
	w.awaitWhere(t, held, "")
}
