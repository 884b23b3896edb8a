// SPDX-License-Identifier: Apache-2.0

//go:build placement

package placement

import (
	"fmt"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/test/placement/bed"
)

// onceObjects are a Job that runs on, a Job that ends, a Pod and a CronJob, and a policy of the namespace for them all
// that makes before it breaks.
const onceObjects = `
apiVersion: placement.patchbay.io/v1alpha1
kind: Placement
metadata: {name: all}
spec:
  clusters: {names: [south, west, east]}
  move: {mode: MakeBeforeBreak}
---
apiVersion: batch/v1
kind: Job
metadata: {name: runs}
spec:
  template:
    metadata: {annotations: {%[1]s: 10h}}
    spec: {restartPolicy: Never, containers: [{name: c, image: "registry.example/app:1"}]}
---
apiVersion: batch/v1
kind: Job
metadata: {name: ends}
spec:
  template:
    spec: {restartPolicy: Never, containers: [{name: c, image: "registry.example/app:1"}]}
---
apiVersion: v1
kind: Pod
metadata: {name: bare}
spec:
  automountServiceAccountToken: false
  containers: [{name: c, image: "registry.example/app:1"}]
---
apiVersion: batch/v1
kind: CronJob
metadata: {name: schedule}
spec:
  schedule: "0 0 1 1 *"
  jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: "registry.example/app:1"}]}}}}
`

// kcp controllers: a Job and a Pod run in one cluster and in no other one, whatever is drained, tainted, annotated or asked
// for by the policy of the namespace. A CronJob is in one cluster, and moves. It drains and taints a cluster, so no test runs
// beside it.
func TestJobRunsOnce(t *testing.T) {
	w := shared
	ns := w.namespace(t)
	checkInvariants(t, w, ns) // I10
	if err := w.Hub.Client.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "default"}}); client.IgnoreAlreadyExists(err) != nil {
		t.Fatal(err)
	}
	w.apply(t, w.Hub.Client, ns, fmt.Sprintf(onceObjects, bed.ReadyAfter))
	runs, ends, bare, schedule := object("batch/v1", "Job", ns, "runs"), object("batch/v1", "Job", ns, "ends"), object("v1", "Pod", ns, "bare"), object("batch/v1", "CronJob", ns, "schedule")
	isIn := func(cluster string, all ...*unstructured.Unstructured) {
		t.Helper()
		for _, o := range all {
			w.awaitClustersWith(t, sameKey(o), cluster)
		}
	}
	stays := func() {
		t.Helper()
		w.awaitPlacedReason(t, runs, v1alpha1.ReasonRunsOnce)
		w.awaitPlacedReason(t, bare, v1alpha1.ReasonRunsOnce)
		isIn("south", runs, bare)
	}
	goes := func() {
		t.Helper()
		w.awaitPlacedReason(t, runs, v1alpha1.ReasonAsExpected)
		w.awaitPlacedReason(t, bare, v1alpha1.ReasonAsExpected)
	}
	isIn("south", runs, ends, bare, schedule)
	isComplete := func() error {
		j := &batchv1.Job{}
		err := w.Hub.Client.Get(t.Context(), client.ObjectKeyFromObject(ends), j)
		return errorUnless(err == nil && j.Status.CompletionTime != nil && j.Status.Succeeded == 1, "status %+v (%v)", j.Status, err)
	}
	eventually(t, "the Job is complete at the hub", isComplete)

	t.Cleanup(func() { w.patchCluster(t, "south", `{"spec":{"drain":null,"taints":null}}`) })
	w.patchCluster(t, "south", `{"spec":{"drain":{"mode":"Move"}}}`)
	stays()
	isIn("west", schedule)
	isIn("", ends)
	w.patchCluster(t, "south", `{"spec":{"drain":null}}`)
	goes()
	w.patchCluster(t, "south", `{"spec":{"taints":[{"key":"broken","effect":"NoExecute"}]}}`)
	stays()
	w.patchCluster(t, "south", `{"spec":{"taints":null}}`)
	goes()
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"clusters":{"names":["east"]}}}`))
	if err := w.Hub.Client.Patch(t.Context(), object(v1alpha1.SchemeGroupVersion().String(), "Placement", ns, "all"), patch); err != nil {
		t.Fatal(err)
	}
	stays()
	isIn("east", schedule)
	for _, o := range []client.Object{sameKey(runs), sameKey(bare)} {
		w.annotate(t, o, "west")
	}
	stays()
	isIn("", ends)
	if err := isComplete(); err != nil {
		t.Error("the result of a Job that has left: ", err)
	}
}
