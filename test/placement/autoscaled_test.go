// SPDX-License-Identifier: Apache-2.0

//go:build placement

package placement

import (
	"fmt"
	"strings"
	"testing"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// autoscaler is a HorizontalPodAutoscaler of web without metrics: it requests nothing by itself, and keeps to its bounds.
const autoscaler = `
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  minReplicas: 2
  maxReplicas: 12
`

// An autoscaler has scaled a Deployment of 2 replicas to 8. A move of it keeps 8 available, also when another autoscaler
// takes them in the new cluster, where no load has come yet: the bounds of the first one give them back. After the move
// each autoscaler is free again, and the hub writes nothing.
func TestHPAMove(t *testing.T) {
	t.Parallel()
	w := shared
	u := w.user(t)
	ns := u.ns
	u.runAll(w.Hub.ControlPlane.AdminKubeconfig(), u.fromPage("apply: {yield", "namespace: shop", "namespace: "+ns, "apply: {yield", "move: {stable: 15s}\n  apply: {yield"))
	w.apply(t, w.Hub.Client, ns, autoscaler+"---"+plainDeployment("web", 2))
	w.awaitReplicas(t, ns, map[string]int32{"east": 2})
	w.autoscale(t, "east", ns, 8)
	w.awaitHubAvailable(t, ns, "web", 8)

	web := object("apps/v1", "Deployment", ns, "web")
	w.annotate(t, web, "west")
	w.awaitMoveInProgress(t, ns)
	eventually(t, "west gets all 8", func() error {
		got, err := w.replicas(t.Context(), ns, "web")
		return errorUnless(err == nil && got["west"] == 8, "%v (%v)", got, err)
	})
	w.autoscale(t, "west", ns, 3)
	eventually(t, "west has its 8 again", func() error {
		got, err := w.replicas(t.Context(), ns, "web")
		return errorUnless(err == nil && got["west"] == 8, "%v (%v)", got, err)
	})
	w.awaitReplicas(t, ns, map[string]int32{"west": 8})
	w.awaitHubAvailable(t, ns, "web", 8)
	w.awaitClustersWith(t, object("autoscaling/v2", "HorizontalPodAutoscaler", ns, "web"), "west")
	eventually(t, "the autoscaler is free in west, and the hub has its status", func() error {
		there, here := &autoscalingv2.HorizontalPodAutoscaler{}, &autoscalingv2.HorizontalPodAutoscaler{}
		key := client.ObjectKey{Namespace: ns, Name: "web"}
		if err := w.Clusters["west"].Client.Get(t.Context(), key, there); err != nil {
			return err
		}
		if err := w.Hub.Client.Get(t.Context(), key, here); err != nil {
			return err
		}
		return errorUnless(*there.Spec.MinReplicas == 2 && there.Spec.MaxReplicas == 12 && here.Status.CurrentReplicas == 8,
			"spec in west %+v, status at the hub %+v", there.Spec, here.Status)
	})
	a, err := w.assignment(t.Context(), ns, "Deployment", "web")
	if err != nil || strings.Contains(fmt.Sprint(a.Spec), "Draining") {
		t.Errorf("%+v (%v)", a, err)
	}
}

// autoscale scales web in a cluster, as autoscalers do.
func (w *world) autoscale(t *testing.T, cluster, ns string, n int32) {
	t.Helper()
	scale := &autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "web"}, Spec: autoscalingv1.ScaleSpec{Replicas: n}}
	err := w.Clusters[cluster].Client.SubResource("scale").Update(t.Context(), object("apps/v1", "Deployment", ns, "web"),
		client.WithSubResourceBody(scale), client.FieldOwner("keda"))
	if err != nil {
		t.Fatal(err)
	}
}
