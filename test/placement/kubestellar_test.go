// SPDX-License-Identifier: Apache-2.0

//go:build placement

package placement

import (
	"fmt"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// KubeStellar, customisation: a property's change re-renders its own cluster only, and a
// rule that fails keeps the last good version.
func TestKubeStellarCustomisation(t *testing.T) {
	t.Parallel()
	w := shared
	ns := w.namespace(t)
	checkInvariants(t, w, ns)
	for _, name := range []string{"east", "west"} {
		w.patchCluster(t, name, fmt.Sprintf(`{"spec":{"properties":{"zone":"%s-1"}}}`, name))
	}
	w.apply(t, w.Hub.Client, ns, placement("two", "east, west")+`---
apiVersion: placement.patchbay.io/v1alpha1
kind: Customization
metadata: {name: zones}
spec:
  match: {kinds: [ConfigMap]}
  rules: [{path: data.zone, cel: "cluster.properties.zone"}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {a: b}
`)
	zone := func(cluster string) (string, string) {
		o := &corev1.ConfigMap{}
		if err := w.Clusters[cluster].Client.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "settings"}, o); err != nil {
			return err.Error(), ""
		}
		return o.Data["zone"], o.ResourceVersion
	}
	await := func(cluster, want string) {
		t.Helper()
		eventually(t, cluster+" has "+want, func() error {
			if got, _ := zone(cluster); got != want {
				return fmt.Errorf("has %q", got)
			}
			return nil
		})
	}
	await("east", "east-1")
	await("west", "west-1")
	_, before := zone("west")
	w.patchCluster(t, "east", `{"spec":{"properties":{"zone":"east-2"}}}`)
	await("east", "east-2")
	if _, after := zone("west"); after != before {
		t.Errorf("west was written for a property of east: resourceVersion %s, then %s", before, after)
	}
	bad := &v1alpha1.Customization{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "zones"}}
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"rules":[{"path":"data.zone","cel":"cluster.properties.nothing"}]}}`))
	if err := w.Hub.Client.Patch(t.Context(), bad, patch); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the Assignment says what is wrong", func() error {
		a, err := w.assignment(t.Context(), ns, "ConfigMap", "settings")
		if err != nil {
			return err
		}
		for _, c := range a.Status.Conditions {
			if c.Type == v1alpha1.ConditionRendered && c.Status == metav1.ConditionFalse && c.Reason == v1alpha1.ReasonInvalidRule {
				return nil
			}
		}
		return fmt.Errorf("conditions %+v", a.Status.Conditions)
	})
	await("east", "east-2")
	await("west", "west-1")
}

// KubeStellar, status: exact for one cluster, a summary for several.
func TestKubeStellarExactAndSummary(t *testing.T) {
	t.Parallel()
	w := shared
	ns := w.namespace(t)
	checkInvariants(t, w, ns)
	w.apply(t, w.Hub.Client, ns, deployment("one", 2, "east", "1s")+"---\n"+deployment("two", 4, "east,west", "1s"))
	w.awaitHubAvailable(t, ns, "one", 2)
	w.awaitExact(t, ns, "one")
	eventually(t, "the summary has 4 of all", func() error {
		d := &appsv1.Deployment{}
		if err := w.Hub.Client.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "two"}, d); err != nil {
			return err
		}
		s := d.Status
		available := func(c appsv1.DeploymentCondition) bool {
			return c.Type == appsv1.DeploymentAvailable && c.Status == corev1.ConditionTrue
		}
		ok := s.Replicas == 4 && s.ReadyReplicas == 4 && s.UpdatedReplicas == 4 && s.AvailableReplicas == 4 && s.ObservedGeneration == d.Generation
		return errorUnless(ok && slices.ContainsFunc(s.Conditions, available), "status %+v", s)
	})
}
