// SPDX-License-Identifier: Apache-2.0

//go:build placement

package placement

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/test/placement/bed"
)

// drainedObjects are 50 objects of all sorts in south, most of which may also be in west. One is too large for
// west, a claim has data, and a DaemonSet is for south only.
func drainedObjects() string {
	var parts []string
	add := func(n int, format string) {
		for i := range n {
			parts = append(parts, strings.ReplaceAll(format, "NUMBER", fmt.Sprint(i)))
		}
	}
	const pods = `
  selector: {matchLabels: {app: NAME}}
  template:
    metadata: {labels: {app: NAME}}
    spec: {containers: [{name: c, image: "registry.example/app:1"REST}]}`
	graceful := func(text string) string {
		return strings.Replace(text, "metadata: {labels: {app: web-NUMBER}}", "metadata: {labels: {app: web-NUMBER}, annotations: {"+bed.EndsAfter+": 5s}}", 1)
	}
	podsOf := func(name, rest string) string { return strings.NewReplacer("NAME", name, "REST", rest).Replace(pods) }
	add(14, "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web-NUMBER}\nspec:\n  replicas: 2"+
		graceful(podsOf("web-NUMBER", ", envFrom: [{configMapRef: {name: config-NUMBER, optional: true}}]")))
	add(6, "apiVersion: v1\nkind: Service\nmetadata: {name: web-NUMBER}\nspec: {selector: {app: web-NUMBER}, ports: [{port: 80}]}")
	add(8, "apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {name: db-NUMBER}\nspec:\n  serviceName: db\n  replicas: 1"+podsOf("db-NUMBER", ""))
	add(4, "apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: node-NUMBER}\nspec:"+podsOf("node-NUMBER", ""))
	add(1, "apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: pinned, annotations: {placement.patchbay.io/clusters: south}}\nspec:"+podsOf("pinned", ""))
	add(4, `apiVersion: batch/v1
kind: Job
metadata: {name: job-NUMBER}
spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: "registry.example/app:1"}]}}}`)
	add(2, `apiVersion: v1
kind: Pod
metadata: {name: pod-NUMBER}
spec: {containers: [{name: c, image: "registry.example/app:1"}]}`)
	add(8, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: config-NUMBER}\ndata: {a: b}")
	for name, cluster := range map[string]string{"data": "south", "other": "west"} {
		add(1, "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: "+name+", annotations: {placement.patchbay.io/clusters: "+cluster+`}}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}`)
	}
	add(1, "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: large}\nspec:\n  replicas: 1"+podsOf("large", `, resources: {requests: {cpu: "2"}}`))
	return strings.Join(parts, "\n---\n")
}

// kcp 6: one command empties a cluster of 50 mixed workloads. It names what cannot leave, and what stays. No request
// fails meanwhile, and the cluster is drained when there is room.
func TestKCP6Decommission(t *testing.T) {
	w := shared
	u := &user{terminal: &terminal{t: t, dir: t.TempDir()}, w: w, ns: w.namespace(t)}
	x := checkInvariants(t, w, u.ns)
	hub := w.Hub.ControlPlane.AdminKubeconfig()
	w.patchCluster(t, "west", `{"spec":{"limits":{"cpu":"1"}}}`)
	t.Cleanup(func() { w.patchCluster(t, "west", `{"spec":{"limits":null}}`) })
	objects := drainedObjects()
	if n := strings.Count(objects, "apiVersion:"); n != 50 {
		t.Fatalf("%d objects, want 50", n)
	}
	u.kubectl("apply -f " + u.file("objects.yaml", placement("p", "south, west")+"---\n"+objects))
	u.kubectl("wait --for=condition=Available deployment --all --timeout=200s")
	u.kubectl("wait --for=condition=Complete job --all --timeout=200s")
	eventually(t, "all is placed", func() error {
		var list v1alpha1.AssignmentList
		if err := w.Hub.Client.List(t.Context(), &list, client.InNamespace(u.ns)); err != nil {
			return err
		}
		for i := range list.Items {
			if a := &list.Items[i]; !meta.IsStatusConditionTrue(a.Status.Conditions, v1alpha1.ConditionPlaced) {
				return fmt.Errorf("%s: %+v", a.Spec.Object.Name, a.Status.Conditions)
			}
		}
		return errorUnless(len(list.Items) == 50, "%d Assignments", len(list.Items))
	})
	stops := []func(){w.traffic(t, u.ns, "web-0", 2), w.traffic(t, u.ns, "web-1", 2)}

	t.Cleanup(func() { w.patchCluster(t, "south", `{"spec":{"drain":null}}`) })
	drain := u.fromPage("cluster drain east --max-moves", "drain east", "drain south", "--max-moves=5", "--max-moves=20")
	type result struct {
		out string
		err error
	}
	ended := make(chan result, 1)
	go func() {
		out, err := u.tryRun(hub, drain[0])
		ended <- result{out, err}
	}()
	eventually(t, "only what cannot leave is left", func() error {
		c := cluster("south")
		if err := w.Hub.Client.Get(t.Context(), client.ObjectKeyFromObject(c), c); err != nil {
			return err
		}
		s := c.Status.Drain
		return errorUnless(s != nil && s.Total >= 40 && s.Blocked == 1 && s.Moving+s.Waiting == 0, "%+v", s)
	})
	names := []string{
		"Deployment " + u.ns + "/large (Unschedulable): ", "PersistentVolumeClaim " + u.ns + "/data (VolumesRefused): ",
		"DaemonSet " + u.ns + "/pinned (Pinned): ",
	}
	out, err := u.tryRun(hub, "kubectl patchbay cluster drain south --timeout=1s")
	for _, name := range names {
		if err == nil || !strings.Contains(out, name) {
			t.Errorf("drain with a timeout: %v, want an error that names %q:\n%s", err, name, out)
		}
	}
	u.kubectl("delete persistentvolumeclaim data") // its owner has moved the data
	u.kubectl("delete pod --all")
	w.patchCluster(t, "west", `{"spec":{"limits":{"cpu":"3"}}}`)
	r := <-ended
	for _, text := range append(names, " left, ", "south is drained, but for ") {
		if r.err != nil || !strings.Contains(r.out, text) {
			t.Errorf("drain: %v, want %q in\n%s", r.err, text, r.out)
		}
	}
	for _, stop := range stops {
		stop()
	}
	u.kubectl("wait --for=condition=Available deployment --all --timeout=200s")
	left := u.run(w.Clusters["south"].ControlPlane.AdminKubeconfig(),
		"kubectl get deployments,statefulsets,daemonsets,jobs,pods,services,configmaps -o name -n "+u.ns)
	for line := range strings.Lines(left) {
		if !strings.Contains(line, "/pinned") && !strings.Contains(line, "/kube-root-ca.crt") {
			t.Errorf("south still has %s", line)
		}
	}
	x.read(t)
	if got := maxLeaving(slices.Clone(x.writes), "south"); got > 20 || got < 2 {
		t.Errorf("drain: %d objects left south at a time, want 2 to 20", got)
	}
	if out := u.run(hub, "kubectl patchbay cluster uncordon south --end-drain"); out != "south is uncordoned\n" {
		t.Errorf("uncordon: %q", out)
	}
}
