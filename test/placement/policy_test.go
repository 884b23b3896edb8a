// SPDX-License-Identifier: Apache-2.0

//go:build placement

package placement

import (
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/test/placement/bed"
)

// kcp policy: object comes before namespace before all, and RBAC stays at the hub.
func TestKCPPolicy(t *testing.T) {
	t.Parallel()
	w := shared
	ns := w.namespace(t)
	checkInvariants(t, w, ns)
	settings := object("v1", "ConfigMap", ns, "settings")
	w.apply(t, w.Hub.Client, ns, fmt.Sprintf(`
apiVersion: placement.patchbay.io/v1alpha1
kind: ClusterPlacement
metadata: {name: %[1]s}
spec:
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: %[1]s}}
  clusters: {names: [south]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {a: b}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reader}
rules: [{apiGroups: [""], resources: [configmaps], verbs: [get]}]
`, ns))
	t.Cleanup(func() { w.deleteAtEnd(t, object("placement.patchbay.io/v1alpha1", "ClusterPlacement", "", ns)) })
	w.awaitClustersWith(t, settings, "south") // the policy for all
	w.apply(t, w.Hub.Client, ns, placement("here", "west"))
	w.awaitClustersWith(t, settings, "west") // the namespace's
	w.annotate(t, object("v1", "ConfigMap", ns, "settings"), "east,west")
	w.awaitClustersWith(t, settings, "east,west") // the object's own
	w.annotate(t, object("v1", "ConfigMap", ns, "settings"), "")
	w.awaitClustersWith(t, settings, "") // nowhere
	role := object("rbac.authorization.k8s.io/v1", "Role", ns, "reader")
	if got := w.clustersWith(t, role); got != "" {
		t.Errorf("Role: is in %s, want it at the hub only", got)
	}
	clusters := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":{"placement.patchbay.io/clusters":"east"}}}`))
	if err := w.Hub.Client.Patch(t.Context(), role, clusters); err == nil || !strings.Contains(err.Error(), "stay at the hub") {
		t.Errorf("Role with the annotation: got %v, want a refusal that says that roles stay at the hub", err)
	}
}

// kcp controllers: what an operator makes at the hub is placed, and looks as if it ran
// there: a Pod is in exactly one cluster, its status comes back, its UID is the hub's.
func TestKCPControllers(t *testing.T) {
	t.Parallel()
	w := shared
	ns := w.namespace(t)
	checkInvariants(t, w, ns)
	w.apply(t, w.Hub.Client, ns, placement("two", "east, west")+`---
apiVersion: v1
kind: Pod
metadata: {name: probe}
spec:
  containers: [{name: c, image: "registry.example/app:1"}]
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  replicas: 2
  serviceName: db
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec:
      containers: [{name: c, image: "registry.example/app:1"}]
`)
	pod := &corev1.Pod{}
	eventually(t, "the Pod runs, as the hub sees it", func() error {
		err := w.Hub.Client.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "probe"}, pod)
		if err == nil && pod.Status.Phase != corev1.PodRunning {
			err = fmt.Errorf("phase %q", pod.Status.Phase)
		}
		return err
	})
	at := w.clustersWith(t, object("v1", "Pod", ns, "probe"))
	if strings.Contains(at, ",") || at == "" {
		t.Fatalf("Pod: is in %q, want one cluster", at)
	}
	there := &corev1.Pod{}
	if err := w.Clusters[at].Client.Get(t.Context(), client.ObjectKeyFromObject(pod), there); err != nil {
		t.Fatal(err)
	}
	if there.UID == pod.UID || there.Status.PodIP != pod.Status.PodIP {
		t.Errorf("Pod: UIDs %s, %s, addresses %q, %q: want the hub's UID kept, the status as it is", pod.UID, there.UID, pod.Status.PodIP, there.Status.PodIP)
	}
	eventually(t, "the StatefulSet is ready at the hub", func() error {
		s := &appsv1.StatefulSet{}
		if err := w.Hub.Client.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "db"}, s); err != nil {
			return err
		}
		if s.Status.ReadyReplicas != 2 {
			return fmt.Errorf("status %+v", s.Status)
		}
		return nil
	})
	if at := w.clustersWith(t, object("apps/v1", "StatefulSet", ns, "db")); strings.Contains(at, ",") {
		t.Errorf("StatefulSet: is in %s, want one cluster", at)
	}
}

// KubeStellar, associated objects: the hub counts a workload's Pods and names the broken.
func TestKubeStellarAssociatedObjects(t *testing.T) {
	t.Parallel()
	w := shared
	ns := w.namespace(t)
	checkInvariants(t, w, ns)
	text := strings.ReplaceAll(deployment("web", 25, "east", ""), bed.ReadyAfter, bed.Broken)
	w.apply(t, w.Hub.Client, ns, text)
	eventually(t, "25 Pods are broken, 20 of them by name", func() error {
		a, err := w.assignment(t.Context(), ns, "Deployment", "web")
		if err != nil {
			return err
		}
		for _, c := range a.Status.Clusters {
			if c.Associated != nil && c.Associated.Pods["CrashLoopBackOff"] == 25 && len(c.Associated.Broken) == 20 &&
				c.Associated.Broken[0].Message != "" {
				return nil
			}
		}
		return fmt.Errorf("status %+v", a.Status.Clusters)
	})
}
