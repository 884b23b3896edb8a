// SPDX-License-Identifier: Apache-2.0

//go:build placement

package placement

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// kcp 1: unchanged objects are in the clusters, and kubectl's ways to wait work at the
// hub.
func TestKCP1ApplyUnchanged(t *testing.T) {
	t.Parallel()
	w := shared
	u := w.user(t)
	ns := u.ns
	for _, name := range []string{"east", "west"} {
		w.patchCluster(t, name, `{"metadata":{"labels":{"region":"eu"}}}`)
	}
	u.runAll(w.Hub.ControlPlane.AdminKubeconfig(), u.fromPage("region: eu", "namespace: shop", "namespace: "+ns))
	w.apply(t, w.Hub.Client, ns, plainDeployment("web", 4)+`
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  selector: {app: web}
  ports: [{port: 80}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {a: b}
`)
	for _, args := range [][]string{
		{"rollout", "status", "deployment/web", "--timeout=220s"},
		{"wait", "--for=condition=Available", "deployment/web", "--timeout=220s"},
		{"get", "deployment", "web"},
	} {
		if out, err := w.Hub.Kubectl(t.Context(), append(args, "-n", ns)...); err != nil {
			t.Fatalf("kubectl %v: %v\n%s", args, err, out)
		}
	}
	w.awaitReplicas(t, ns, map[string]int32{"east": 3, "west": 1})
	for _, name := range []string{"east", "west"} {
		for _, o := range []client.Object{object("v1", "Service", ns, "web"), object("v1", "ConfigMap", ns, "settings")} {
			eventually(t, o.GetName()+" is in "+name, func() error {
				return w.Clusters[name].Client.Get(t.Context(), client.ObjectKeyFromObject(o), o)
			})
		}
	}
}

// kcp 2: one edit of one annotation divides or moves the object; nothing is left behind.
func TestKCP2MoveByOneAttribute(t *testing.T) {
	t.Parallel()
	w := shared
	u := w.user(t)
	ns := u.ns
	w.apply(t, w.Hub.Client, ns, strings.Replace(plainDeployment("web", 4), `"0s"`, `"1s"`, 1)) // its Pods are ready after a second
	wants := []map[string]int32{{"east": 2, "west": 2}, {"east": 3, "west": 1}, {"west": 4}}
	edits := u.fromPage("kubectl annotate deployment web", "kubectl annotate", "kubectl annotate -n "+ns)
	if len(edits) != len(wants) {
		t.Fatalf("edits of the page: got %q, want %d", edits, len(wants))
	}
	for i, want := range wants {
		u.run(w.Hub.ControlPlane.AdminKubeconfig(), edits[i])
		w.awaitReplicas(t, ns, want)
		w.awaitHubAvailable(t, ns, "web", 4)
	}
	eventually(t, "no Pod is left in east", func() error {
		list := &corev1.PodList{}
		if err := w.Clusters["east"].Client.List(t.Context(), list, client.InNamespace(ns)); err != nil {
			return err
		}
		if len(list.Items) > 0 {
			return fmt.Errorf("%d Pods", len(list.Items))
		}
		return nil
	})
}
