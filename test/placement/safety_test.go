// SPDX-License-Identifier: Apache-2.0

//go:build placement

package placement

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// objectsWithoutClaims is one object of each sort that people place and that moves.
var objectsWithoutClaims = plainDeployment("web", 4) + `---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  replicas: 2
  serviceName: web
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec:
      containers: [{name: c, image: "registry.example/app:1"}]
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: node}
spec:
  selector: {matchLabels: {app: node}}
  template:
    metadata: {labels: {app: node}}
    spec:
      containers: [{name: c, image: "registry.example/app:1"}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: config}
data: {a: b}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  selector: {app: web}
  ports: [{port: 80}]
---
apiVersion: test.example.com/v1
kind: Widget
metadata: {name: gear}
spec: {size: 1}
`

// objectsOfAllKinds are the same and a claim.
var objectsOfAllKinds = objectsWithoutClaims + `---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
`

// objectsIn names these objects in a namespace.
func objectsIn(ns string) []client.Object {
	return []client.Object{
		object("apps/v1", "Deployment", ns, "web"), object("apps/v1", "StatefulSet", ns, "db"), object("apps/v1", "DaemonSet", ns, "node"),
		object("v1", "ConfigMap", ns, "config"), object("v1", "Service", ns, "web"), object("v1", "PersistentVolumeClaim", ns, "data"),
		object("test.example.com/v1", "Widget", ns, "gear"),
	}
}

// place applies a policy and the mixed objects with kubectl, and waits until all are settled.
func (u *user) place(policy string) []client.Object {
	u.t.Helper()
	u.w.installWidgets(u.t)
	u.kubectl("apply -f " + u.file("placed.yaml", policy+"---\n"+objectsOfAllKinds))
	all := objectsIn(u.ns)
	for _, o := range all {
		u.w.awaitPlacedReason(u.t, o, v1alpha1.ReasonAsExpected)
	}
	u.w.awaitHubAvailable(u.t, u.ns, "web", 4)
	return all
}

// user is a person with kubectl in a namespace of the hub.
type user struct {
	*terminal
	w  *world
	ns string
}

// user makes a person for a test, with a namespace of its own that is watched.
func (w *world) user(t *testing.T) *user {
	t.Helper()
	u := &user{terminal: &terminal{t: t, dir: t.TempDir()}, w: w, ns: w.namespace(t)}
	checkInvariants(t, w, u.ns)
	return u
}

func (u *user) kubectl(args string) string {
	u.t.Helper()
	return u.run(u.w.Hub.ControlPlane.AdminKubeconfig(), "kubectl -n "+u.ns+" "+args)
}

// file writes a file and returns its path.
func (u *user) file(name, text string) string {
	u.t.Helper()
	path := filepath.Join(u.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		u.t.Fatal(err)
	}
	return path
}

// Safety 1: a policy that is replaced by force, deleted and made again, reinstalled by Helm or
// replaced by GitOps, or that no longer selects what it placed, removes nothing: no request of
// 200 in each second fails meanwhile, and each object keeps its UID.
func TestSafetyLostPolicy(t *testing.T) {
	t.Parallel()
	w := shared
	u := w.user(t)
	policy := placement("p", "east, west")
	objects := u.place(policy)
	before := w.uids(t, objects)
	if len(before) != 2*len(objects)-2 { // the StatefulSet and the claim are in one cluster
		t.Fatalf("objects in clusters: got %v, want all", before)
	}
	stop := w.traffic(t, u.ns, "web", 4)
	file := u.file("policy.yaml", policy)
	helm := u.file("release.yaml", strings.Replace(policy, "{name: p}", `{name: p, labels: {app.kubernetes.io/managed-by: Helm}, annotations: {meta.helm.sh/release-name: shop}}`, 1))
	gitops := func(name string) string {
		return "KUBECTL_APPLYSET=true kubectl -n " + u.ns + " apply --server-side --prune --applyset=shop -f " + u.file(name+".yaml", placement(name, "east, west"))
	}
	admin := w.Hub.ControlPlane.AdminKubeconfig()
	for _, step := range []struct {
		what string
		do   func()
		want string // the reason of the condition Placed
	}{
		{"replaced by force", func() {
			for range 3 {
				u.kubectl("replace --force -f " + file)
			}
		}, v1alpha1.ReasonAsExpected},
		{"deleted", func() { u.kubectl("delete placement p") }, v1alpha1.ReasonNoPolicy},
		{"made again", func() { u.kubectl("apply -f " + file) }, v1alpha1.ReasonAsExpected},
		{"a release of Helm, reinstalled", func() {
			u.kubectl("apply -f " + helm)
			u.kubectl("delete -f " + helm)
			u.kubectl("apply -f " + helm)
		}, v1alpha1.ReasonAsExpected},
		{"a release of Helm, uninstalled", func() { u.kubectl("delete -f " + helm) }, v1alpha1.ReasonNoPolicy},
		{"of GitOps", func() { u.run(admin, gitops("first")) }, v1alpha1.ReasonAsExpected},
		{"of GitOps, renamed", func() { u.run(admin, gitops("second")) }, v1alpha1.ReasonAsExpected},
		{"not of these objects", func() {
			u.kubectl(`patch placement second --type=merge -p '{"spec":{"objects":[{"kind":"ConfigMap","names":["other"]}]}}'`)
		}, v1alpha1.ReasonNoPolicy},
	} {
		step.do()
		for _, o := range objects {
			w.awaitPlacedReason(t, o, step.want)
		}
		if after := w.uids(t, objects); fmt.Sprint(after) != fmt.Sprint(before) {
			t.Fatalf("policy %s: got UIDs %v, want %v", step.what, after, before)
		}
	}
	if left := u.kubectl("get patchbay-placement -o name"); !strings.Contains(left, "/second") || strings.Contains(left, "/first") {
		t.Errorf("placement kinds: got %s, want the second policy and not the first", left)
	}
	stop()
	u.run(admin, "kubectl patchbay remove configmap/config --yes -n "+u.ns)
	w.awaitClustersWith(t, objects[3], "")
	w.awaitClustersWith(t, objects[0], "east,west")
}

// Safety 3: a workload with a volume claim, or with a template of one, does not leave its
// cluster, and its claim stays when the workload is deleted, also after the claim is deleted at
// the hub.
func TestSafetyVolumeClaims(t *testing.T) {
	t.Parallel()
	cases := map[string]struct{ reason, kind, text string }{
		"Deployment": {
			"It names the claim.", "Deployment",
			strings.Replace(deployment("web", 1, "east", ""), "      containers:", "      volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]\n      containers:", 1),
		},
		"StatefulSet": {
			"Its cluster makes a claim from the template.", "StatefulSet",
			strings.NewReplacer("kind: Deployment", "kind: StatefulSet", "  replicas: 1", `  replicas: 1
  serviceName: web
  volumeClaimTemplates: [{metadata: {name: data}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}]`).
				Replace(deployment("web", 1, "east", "")),
		},
	}
	w := shared
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := w.user(t)
			claim := `
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data, annotations: {placement.patchbay.io/clusters: east}}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
---
`
			u.kubectl("apply -f " + u.file("objects.yaml", claim+tc.text))
			web, data := object("apps/v1", tc.kind, u.ns, "web"), object("v1", "PersistentVolumeClaim", u.ns, "data")
			made := object("v1", "PersistentVolumeClaim", u.ns, "data")
			if tc.kind == "StatefulSet" {
				made.SetName("data-web-0")
			}
			for _, o := range []client.Object{web, data, made} {
				w.awaitClustersWith(t, o, "east")
			}
			before := []types.UID{data.GetUID(), made.GetUID()}
			u.kubectl("annotate --overwrite " + tc.kind + "/web placement.patchbay.io/clusters=west")
			w.awaitPlacedReason(t, web, v1alpha1.ReasonVolumesRefused)
			u.kubectl("delete " + tc.kind + "/web")
			w.awaitClustersWith(t, web, "")
			u.kubectl("delete pvc/data")
			eventually(t, "the hub has let the claim go", func() error { return w.checkGoneFromHub(t, data) })
			for i, o := range []client.Object{data, made} {
				if got := w.clustersWith(t, o); got != "east" || o.GetUID() != before[i] {
					t.Errorf("%s\nclaim %s: is in %q with UID %s, want it kept in east with %s", tc.reason, o.GetName(), got, o.GetUID(), before[i])
				}
			}
			checkLetGo(t, data)
		})
	}
}

// Safety 3: a custom resource whose operator keeps data in volume claims does not leave its cluster,
// where its claims would be deleted with it, also while its Pods restart.
func TestSafetyClaimsOfAnOperator(t *testing.T) {
	t.Parallel()
	w := shared
	u := w.user(t)
	w.installWidgets(t)
	u.kubectl("apply -f " + u.file("db.yaml", "apiVersion: test.example.com/v1\nkind: Widget\n"+
		"metadata: {name: db, annotations: {placement.patchbay.io/clusters: east}}\nspec: {size: 1}\n"))
	db, data := object("test.example.com/v1", "Widget", u.ns, "db"), object("v1", "PersistentVolumeClaim", u.ns, "data-db")
	w.awaitClustersWith(t, db, "east")
	owner := fmt.Sprintf("[{apiVersion: test.example.com/v1, kind: Widget, name: db, uid: %s, controller: true}]", db.GetUID())
	east := w.Clusters["east"]
	pod := strings.NewReplacer("OWNER", owner).Replace(`
apiVersion: v1
kind: Pod
metadata: {name: db-0, ownerReferences: OWNER}
spec:
  containers: [{name: app, image: app}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: data-db}}]
`)
	w.apply(t, east.Client, u.ns, pod+`---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data-db, ownerReferences: `+owner+`}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
`)
	claims := func(want string) {
		t.Helper()
		eventually(t, "the Work of db reports its claims", func() error {
			got := u.run(w.Hub.ControlPlane.AdminKubeconfig(), "kubectl get works -n cluster-east -o jsonpath='{range .items[?(@.spec.source.namespace==\""+u.ns+"\")]}{.status.manifests[0].volumeClaims}{end}'")
			return errorUnless(strings.TrimSpace(got) == want, "got %s, want %s", got, want)
		})
	}
	claims(`["` + u.ns + `/data-db"]`)
	u.kubectl("annotate --overwrite widget/db placement.patchbay.io/clusters=west")
	w.awaitPlacedReason(t, db, v1alpha1.ReasonVolumesRefused)
	if err := east.Client.Delete(t.Context(), object("v1", "Pod", u.ns, "db-0"), client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	u.kubectl("annotate widget/db touched=true")
	w.awaitPlacedReason(t, db, v1alpha1.ReasonVolumesRefused)
	claims(`["` + u.ns + `/data-db"]`)
	for _, o := range []client.Object{db, data} {
		if got := w.clustersWith(t, o); got != "east" {
			t.Errorf("%s: is in %q, want it kept in east", printedName(o), got)
		}
	}
	if err := east.Client.Delete(t.Context(), object("v1", "PersistentVolumeClaim", u.ns, "data-db")); err != nil {
		t.Fatal(err)
	}
	w.awaitClustersWith(t, db, "west") // without data it moves
}

// Safety 5: a removal that a finalizer holds is reported at the hub, with the finalizer.
func TestSafetyHeldRemoval(t *testing.T) {
	t.Parallel()
	w := shared
	ns := w.namespace(t)
	checkInvariants(t, w, ns)
	w.apply(t, w.Hub.Client, ns, settings("held", "east"))
	held := object("v1", "ConfigMap", ns, "held")
	w.awaitClustersWith(t, held, "east")
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
		key := client.ObjectKey{Namespace: ns, Name: v1alpha1.WorkName("", "ConfigMap", ns, "held")}
		if err := w.Hub.Client.Get(t.Context(), key, a); err != nil {
			return err
		}
		return errorUnless(len(a.Status.Clusters) == 1 && strings.Contains(a.Status.Clusters[0].Message, "example.com/held"), "%+v", a.Status.Clusters)
	})
	finalizers("null")
	w.awaitClustersWith(t, held, "")
}

// Safety 9: of 60 healthy moves none is a Warning.
func TestSafetyHealthyMoves(t *testing.T) {
	t.Parallel()
	w := shared
	u := w.user(t)
	const workloads = 15
	var text string
	for i := range workloads {
		text += "---\n" + deployment(fmt.Sprintf("web-%d", i), 1, "east", "1s")
	}
	u.kubectl("apply -f " + u.file("objects.yaml", text))
	u.kubectl("wait --for=condition=Available deployment --all --timeout=220s")
	var edits []time.Time
	for _, to := range []string{"west", "east", "west", "east"} {
		edits = append(edits, time.Now())
		u.kubectl("annotate --overwrite deployment --all placement.patchbay.io/clusters=" + to)
		for i := range workloads {
			w.awaitClustersWith(t, object("apps/v1", "Deployment", u.ns, fmt.Sprintf("web-%d", i)), to)
		}
	}
	w.checkBlocked(t, u.ns, edits)
}
