// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// silentCluster is a Cluster that last reported at a time.
func silentCluster(at time.Time) *v1alpha1.Cluster {
	c := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "east"}}
	c.Status.LastHeartbeat = &metav1.MicroTime{Time: at}
	c.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReachable, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonHeartbeatLost}}
	return c
}

// lostWork is a Work of east with a manifest, and the status that east last reported.
func lostWork(name, kind, manifest, status string) *v1alpha1.Work {
	w := &v1alpha1.Work{ObjectMeta: metav1.ObjectMeta{Namespace: "cluster-east", Name: strings.ToLower(kind) + name}}
	w.Spec.Source = v1alpha1.ObjectReference{Kind: kind, Namespace: "shop", Name: name}
	w.Spec.Manifests = []v1alpha1.Manifest{{Object: runtime.RawExtension{Raw: []byte(manifest)}}}
	w.Status.Manifests = []v1alpha1.ManifestStatus{{Kind: kind, Name: name}}
	if status != "" {
		w.Status.Manifests[0].Status = &runtime.RawExtension{Raw: []byte(status)}
	}
	return w
}

func TestDeclareLost(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 1, 12, 0, 0, 5000, time.UTC)
	claims := `"volumeClaimTemplates":[{"metadata":{"name":"data"}}]`
	leaving := lostWork("old", "Deployment", `{"apiVersion":"apps/v1","kind":"Deployment"}`, "")
	leaving.Spec.Removal = &v1alpha1.Removal{}
	left := lostWork("left", "Job", `{"apiVersion":"batch/v1","kind":"Job"}`, "")
	left.Spec.Removal = &v1alpha1.Removal{}
	reported := lostWork("op", "Database", `{"apiVersion":"x.io/v1","kind":"Database"}`, "")
	reported.Status.Manifests[0].VolumeClaims = []string{"shop/op-0"}
	works := []client.Object{
		lostWork("web", "Deployment", `{"apiVersion":"apps/v1","kind":"Deployment"}`, `{"replicas":3}`),
		lostWork("queue", "StatefulSet", `{"apiVersion":"apps/v1","kind":"StatefulSet","spec":{}}`, ""),
		lostWork("db", "StatefulSet", `{"apiVersion":"apps/v1","kind":"StatefulSet","spec":{`+claims+`}}`, ""),
		lostWork("data", "PersistentVolumeClaim", `{"apiVersion":"v1","kind":"PersistentVolumeClaim"}`, ""),
		lostWork("sums", "Job", `{"apiVersion":"batch/v1","kind":"Job"}`, `{"active":1}`),
		lostWork("done", "Job", `{"apiVersion":"batch/v1","kind":"Job"}`, `{"conditions":[{"type":"Complete","status":"True"}]}`),
		reported, leaving, left,
	}
	list := `east last reported at 2026-03-01T12:00:00.000005Z.
Started in other clusters, if their policies allow one that has room, unless they run there already:
  Deployment shop/old, whose removal is ordered, and is no longer awaited
  Deployment shop/web
  StatefulSet shop/queue, which must run in one cluster at a time
Run again, from the start, in another cluster:
  Job shop/sums
Not started elsewhere:
  Database shop/op: PersistentVolumeClaim shop/op-0 has its data there
  Job shop/done: it has finished, and does not run again
  PersistentVolumeClaim shop/data: its data is there
  StatefulSet shop/db: PersistentVolumeClaim data has its data there
Nothing has changed. If nothing of this runs in east any more, and its machines are off or gone, run:
  kubectl patchbay cluster declare-lost east --yes
`
	reachable := silentCluster(at)
	reachable.Status.Conditions[0].Status, reachable.Status.LastHeartbeat = metav1.ConditionTrue, nil
	never := silentCluster(at)
	never.Status.Conditions[0].Reason, never.Status.LastHeartbeat = v1alpha1.ReasonNeverJoined, nil
	unobserved := silentCluster(at)
	unobserved.Status.LastHeartbeat = nil
	declared := silentCluster(at)
	declared.Spec.DeclaredLost = &v1alpha1.DeclaredLost{LastHeartbeat: metav1.MicroTime{Time: at}}
	for name, tc := range map[string]struct {
		reason  string
		cluster *v1alpha1.Cluster
		yes     bool
		undo    bool
		out     string
		err     string
		want    *metav1.MicroTime // of spec.declaredLost
	}{
		"dry run":     {"It lists what becomes of each object.", silentCluster(at), false, false, list, "", nil},
		"yes":         {"It declares it.", silentCluster(at), true, false, "east is declared lost: other clusters replace it. Keep its machines off\n", "", &metav1.MicroTime{Time: at}},
		"reports":     {"It may run everything.", reachable, true, false, "", "must not report when it is declared lost", nil},
		"never there": {"Nothing runs there.", never, true, false, "", "must have reported before it can be lost", nil},
		"no hub":      {"What was last reported is not known.", unobserved, true, false, "", "check that patchbay-hub runs", nil},
		"undo":        {"It takes it back.", declared, false, true, "east is not declared lost any more. What other clusters have taken over stays with them\n", "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			scheme := runtime.NewScheme()
			if err := v1alpha1.AddToScheme(scheme); err != nil {
				t.Fatal(err)
			}
			c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(tc.cluster).WithObjects(works...).Build()
			var out bytes.Buffer
			d := &declaration{cluster: "east", yes: tc.yes, undo: tc.undo, command: "kubectl patchbay cluster declare-lost east --yes", out: &out}
			err := d.run(t.Context(), c)
			if tc.err == "" && err != nil || tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err)) {
				t.Fatalf("%s\ngot error %v, want %q", tc.reason, err, tc.err)
			}
			if diff := cmp.Diff(tc.out, out.String()); diff != "" {
				t.Errorf("%s: -want +got\n%s", tc.reason, diff)
			}
			stored := &v1alpha1.Cluster{}
			if err := c.Get(t.Context(), client.ObjectKey{Name: "east"}, stored); err != nil {
				t.Fatal(err)
			}
			got := stored.Spec.DeclaredLost
			if (got == nil) != (tc.want == nil) || got != nil && !got.LastHeartbeat.Equal(tc.want) {
				t.Errorf("%s\ngot %+v, want %v", tc.reason, got, tc.want)
			}
		})
	}
}
