// SPDX-License-Identifier: Apache-2.0

//go:build placement

package placement

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

// imported is what a team runs in a cluster without a hub.
const imported = `
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {color: red}
---
apiVersion: v1
kind: Secret
metadata: {name: password}
stringData: {password: imported-not-printed}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: web}
---
apiVersion: v1
kind: Service
metadata: {name: web, labels: {app.kubernetes.io/managed-by: Helm}}
spec:
  type: NodePort
  selector: {app: web}
  ports: [{port: 80}]
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  serviceName: db
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec:
      containers: [{name: c, image: "registry.example/db:1", envFrom: [{secretRef: {name: password}}]}]
---
apiVersion: batch/v1
kind: CronJob
metadata: {name: nightly}
spec:
  schedule: "0 3 * * *"
  jobTemplate:
    spec:
      template:
        spec:
          restartPolicy: Never
          containers: [{name: c, image: "registry.example/job:1"}]
`

// Take over and leave: what a cluster runs comes under the hub and leaves it again, with the same objects and the
// same Pods. In between the hub's users change it.
func TestImportWithoutRestart(t *testing.T) {
	t.Parallel()
	w, east := shared, shared.Clusters["east"]
	ns := apitest.Name("test")
	if err := east.Client.Create(t.Context(), object("v1", "Namespace", "", ns)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := east.Client.Delete(context.Background(), object("v1", "Namespace", "", ns)); err != nil {
			t.Error(err)
		}
	})
	checkInvariants(t, w, ns)
	s := &terminal{t: t, dir: t.TempDir()}
	hub, there := w.Hub.ControlPlane.AdminKubeconfig(), east.ControlPlane.AdminKubeconfig()
	web := strings.Replace(plainDeployment("web", 2), "      containers:", "      serviceAccountName: web\n      containers:", 1)
	s.run(there, "kubectl apply -n "+ns+" -f - <<'END'"+web+imported+"END")
	objects := []client.Object{
		object("apps/v1", "Deployment", ns, "web"), object("apps/v1", "StatefulSet", ns, "db"), object("batch/v1", "CronJob", ns, "nightly"),
		object("v1", "ConfigMap", ns, "settings"), object("v1", "Secret", ns, "password"), object("v1", "Service", ns, "web"), object("v1", "ServiceAccount", ns, "web"),
	}
	eventually(t, "three Pods run in east", func() error {
		return errorUnless(len(w.podsInEast(t, ns)) == 3, "%v", w.podsInEast(t, ns))
	})
	s.run(there, "kubectl rollout status -n "+ns+" deployment/web statefulset/db --timeout=220s")
	uids, pods, before := w.uids(t, objects), w.podsInEast(t, ns), w.userFields(t, objects)

	page := s.fromPage("kubectl patchbay import", "--in=east shop", "--in=east --in-kubeconfig="+there+" "+ns)
	planned, command := s.run(hub, page[0]), page[1]
	for _, want := range []string{
		"Namespace " + ns + ": is created at the hub", "gets the label placement.patchbay.io/access=create",
		"Deployment " + ns + "/web: is created at the hub for east, and adopted there; nothing changes in east\n",
		"stays in east: ConfigMap " + ns + "/kube-root-ca.crt: each cluster has its own", "owns it\n", "Nothing was changed. To import: kubectl patchbay import " + ns + " --in=east",
	} {
		if !strings.Contains(planned, want) {
			t.Errorf("plan: got\n%s\nwant %q", planned, want)
		}
	}
	if err := w.Hub.Client.Get(t.Context(), client.ObjectKey{Name: ns}, &corev1.Namespace{}); client.IgnoreNotFound(err) != nil || err == nil {
		t.Errorf("plan: the namespace at the hub: got %v, want none", err)
	}
	if out, err := s.tryRun(hub, command+" --timeout=1ms"); err == nil || !strings.Contains(out, "nothing was removed. Correct what is named, and repeat the command") {
		t.Errorf("import that stops in the middle: got %v\n%s", err, out)
	}
	w.checkSame(t, ns, objects, uids, pods, before)
	printed := s.run(hub, command) // continues
	for _, o := range objects {
		if want := fmt.Sprintf("%s %s/%s is imported\n", o.GetObjectKind().GroupVersionKind().Kind, ns, o.GetName()); !strings.Contains(printed, want) {
			t.Errorf("import: got\n%s\nwant %q", printed, want)
		}
	}
	if strings.Contains(planned+printed, "imported-not-printed") || strings.Contains(planned+printed, "aW1wb3J0ZWQtbm90LXByaW50ZWQ") {
		t.Error("the value of a Secret is printed")
	}
	w.checkSame(t, ns, objects, uids, pods, before)
	w.awaitHubAvailable(t, ns, "web", 2)
	if again := s.run(hub, command); strings.Count(again, "is imported already\n") != len(objects) {
		t.Errorf("import again: got\n%s\nwant that nothing is left to do", again)
	}

	w.scale(t, ns, 3) // a hub whose agent shared the fields with kubectl would meet a conflict
	w.awaitReplicas(t, ns, map[string]int32{"east": 3})
	w.awaitHubAvailable(t, ns, "web", 3)
	s.run(hub, "kubectl patch configmap settings -n "+ns+` -p '{"data":{"color":"blue"}}'`)
	eventually(t, "the change of the ConfigMap is in east", func() error {
		o := &corev1.ConfigMap{}
		err := east.Client.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "settings"}, o)
		return errorUnless(err == nil && o.Data["color"] == "blue", "%v, %v", o.Data, err)
	})

	pods, before = w.podsInEast(t, ns), w.userFields(t, objects)
	dir := t.TempDir()
	page = s.fromPage("kubectl patchbay export", "export shop", "export "+ns+" --in=east", "=manifests", "="+dir)
	if planned := s.run(hub, page[0]); !strings.Contains(planned, "Deployment "+ns+"/web: continues in east, and is deleted at the hub\n") {
		t.Errorf("plan of the export: got\n%s", planned)
	}
	printed = s.run(hub, page[1])
	for _, o := range objects {
		if want := fmt.Sprintf("%s %s/%s is exported: it continues in east\n", o.GetObjectKind().GroupVersionKind().Kind, ns, o.GetName()); !strings.Contains(printed, want) {
			t.Errorf("export: got\n%s\nwant %q", printed, want)
		}
		if err := w.checkGoneFromHub(t, o); err != nil {
			t.Errorf("export: %s: %v", printedName(o), err)
		}
	}
	w.checkSame(t, ns, objects, uids, pods, before)
	for _, o := range objects {
		live := object(o.GetObjectKind().GroupVersionKind().GroupVersion().String(), o.GetObjectKind().GroupVersionKind().Kind, ns, o.GetName())
		if err := east.Client.Get(t.Context(), client.ObjectKeyFromObject(o), live); err != nil {
			t.Fatal(err)
		}
		checkLetGo(t, live)
		if _, ok := live.GetLabels()[v1alpha1.AccessLabel]; ok {
			t.Errorf("%s: still has the label %s", printedName(o), v1alpha1.AccessLabel)
		}
	}
	if manifest := readFile(t, filepath.Join(dir, "east", ns, "deployment.apps-web.yaml")); !strings.Contains(manifest, "replicas: 3") {
		t.Errorf("manifest: got\n%s", manifest)
	}
	if files, err := os.ReadDir(filepath.Join(dir, "east", ns)); err != nil || len(files) != len(objects)-1 {
		t.Errorf("manifests: got %v, %v, want all but the Secret", files, err)
	}
	s.run(there, "kubectl apply -n "+ns+" -f - <<'END'"+web+imported+"END") // the team goes on as before
	w.awaitReplicas(t, ns, map[string]int32{"east": 2})
}

// checkSame checks that east has the same objects and Pods as before.
func (w *world) checkSame(t *testing.T, ns string, objects []client.Object, uids any, pods map[string]string, before map[string]any) {
	t.Helper()
	if diff := cmp.Diff(uids, any(w.uids(t, objects))); diff != "" {
		t.Errorf("UIDs: -before +after\n%s", diff)
	}
	if diff := cmp.Diff(pods, w.podsInEast(t, ns)); diff != "" {
		t.Errorf("Pods: -before +after\n%s", diff)
	}
	if diff := cmp.Diff(before, w.userFields(t, objects)); diff != "" {
		t.Errorf("fields: -before +after\n%s", diff)
	}
}

// userFields are all fields of objects in east except metadata and status. The generation of a Deployment is not
// among them: its API server raises that for an annotation, too.
func (w *world) userFields(t *testing.T, objects []client.Object) map[string]any {
	t.Helper()
	found := map[string]any{}
	for _, o := range objects {
		gvk := o.GetObjectKind().GroupVersionKind()
		live := object(gvk.GroupVersion().String(), gvk.Kind, o.GetNamespace(), o.GetName())
		if err := w.Clusters["east"].Client.Get(t.Context(), client.ObjectKeyFromObject(o), live); err != nil {
			t.Fatal(err)
		}
		fields := map[string]any{}
		for key, value := range live.Object {
			if key != "metadata" && key != "status" {
				fields[key] = value
			}
		}
		found[printedName(o)] = fields
	}
	return found
}

// What follows an exported workload only is exported with it, although no policy selects it. What another workload
// needs stays under the hub, where it is.
func TestExportWithDependencies(t *testing.T) {
	t.Parallel()
	w := shared
	ns := w.namespace(t)
	checkInvariants(t, w, ns)
	uses := func(name, more string) string {
		return strings.Replace(deployment(name, 1, "east", ""), `app:1"}]`, `app:1", envFrom: [{configMapRef: {name: shared}}`+more+`]}]`, 1)
	}
	w.apply(t, w.Hub.Client, ns, uses("api", "")+"---"+uses("web", ", {configMapRef: {name: own}}")+`
---
apiVersion: v1
kind: ConfigMap
metadata: {name: own}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: shared}
`)
	web, own, common := object("apps/v1", "Deployment", ns, "web"), object("v1", "ConfigMap", ns, "own"), object("v1", "ConfigMap", ns, "shared")
	for _, o := range []client.Object{web, own, common} {
		w.awaitClustersWith(t, o, "east")
	}
	w.awaitHubAvailable(t, ns, "web", 1)
	w.awaitHubAvailable(t, ns, "api", 1)
	uids, pods := w.uids(t, []client.Object{web, own}), w.podsInEast(t, ns)
	s := &terminal{t: t, dir: t.TempDir()}
	printed := s.run(w.Hub.ControlPlane.AdminKubeconfig(), "kubectl patchbay export "+ns+"/deployment/web --yes")
	for _, want := range []string{
		"ConfigMap " + ns + "/own: continues in east, and is deleted at the hub (only Deployment " + ns + "/web needs it)\n",
		"ConfigMap " + ns + "/shared: stays at the hub for east, because Deployment " + ns + "/api needs it\n", "ConfigMap " + ns + "/own is exported",
	} {
		if !strings.Contains(printed, want) {
			t.Errorf("export: got\n%s\nwant %q", printed, want)
		}
	}
	if diff := cmp.Diff(uids, w.uids(t, []client.Object{web, own})); diff != "" {
		t.Errorf("UIDs: -before +after\n%s", diff)
	}
	if diff := cmp.Diff(pods, w.podsInEast(t, ns)); diff != "" {
		t.Errorf("Pods: -before +after\n%s", diff)
	}
	w.clustersWith(t, web)
	checkLetGo(t, web)
	w.clustersWith(t, own)
	checkLetGo(t, own)
	if w.clustersWith(t, common); common.GetLabels()[v1alpha1.ManagedLabel] != "true" {
		t.Errorf("shared: got labels %v, want it managed", common.GetLabels())
	}
}
