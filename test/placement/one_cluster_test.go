// SPDX-License-Identifier: Apache-2.0

//go:build placement

package placement

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Safety 5: a workload that must not run twice starts in the next cluster when its last Pod has ended in
// the former one, however long that takes within its grace period; and that is no Warning.
func TestSafetyRunsInOneClusterAtATime(t *testing.T) {
	t.Parallel()
	const endsAfter = 6 * time.Second
	cases := map[string]string{ // the kind, and the rest of its spec
		"Deployment":  "",
		"StatefulSet": "\n  serviceName: x",
	}
	w := shared
	for kind, more := range cases {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			ns := w.namespace(t)
			if kind == "StatefulSet" { // of a Deployment the watcher wants the replicas kept (I1)
				checkInvariants(t, w, ns)
			}
			w.apply(t, w.Hub.Client, ns, fmt.Sprintf(`
apiVersion: placement.patchbay.io/v1alpha1
kind: Placement
metadata: {name: once}
spec:
  clusters: {names: [east]}
  replicas: {mode: Single}
  move: {mode: BreakBeforeMake}
---
apiVersion: apps/v1
kind: %s
metadata: {name: x}
spec:
  replicas: 2%s
  selector: {matchLabels: {app: x}}
  template:
    metadata: {labels: {app: x}, annotations: {test.patchbay.io/ends-after: %s}}
    spec:
      containers: [{name: c, image: "registry.example/app:1"}]
`, kind, more, endsAfter))
			count := func(cluster string) int {
				t.Helper()
				list := &corev1.PodList{}
				if err := w.Clusters[cluster].Client.List(t.Context(), list, client.InNamespace(ns)); err != nil {
					t.Fatal(err)
				}
				return len(list.Items)
			}
			eventually(t, "its Pods run in east", func() error { return errorUnless(count("east") == 2, "%d Pods", count("east")) })
			ordered := time.Now()
			w.annotate(t, object("apps/v1", kind, ns, "x"), "west")
			eventually(t, "its Pods run in west", func() error {
				west := count("west") // first: what is in both at a time is seen
				if east := count("east"); east > 0 && west > 0 {
					t.Fatalf("Pods: %d in east and %d in west at a time", east, west)
				}
				return errorUnless(west == 2, "%d Pods", west)
			})
			if took := time.Since(ordered); took < endsAfter {
				t.Errorf("the move took %s: the Pods in east did not take %s to end", took, endsAfter)
			}
			var events corev1.EventList
			if err := w.Hub.Client.List(t.Context(), &events, client.InNamespace(ns)); err != nil {
				t.Fatal(err)
			}
			for _, e := range events.Items {
				if e.Type == corev1.EventTypeWarning {
					t.Errorf("Event: %s %s: %s", e.InvolvedObject.Kind, e.Reason, e.Message)
				}
			}
		})
	}
}
