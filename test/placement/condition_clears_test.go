// SPDX-License-Identifier: Apache-2.0

//go:build placement

package placement

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// A condition goes when a person takes its cause away, and the next one says what is left. The
// watcher would also see one that stays, yet not before it has judged it for a while.
func TestReasonsGoWithTheirCause(t *testing.T) {
	t.Parallel()
	w := shared
	u := w.user(t)
	o, unknown := object("v1", "ConfigMap", u.ns, "settings"), "later-"+u.ns
	east := w.Clusters["east"].ControlPlane.AdminKubeconfig()
	u.run(east, "kubectl create namespace "+u.ns) // and allows nothing in it
	apply := func(text string) { u.kubectl("apply -f " + u.file("objects.yaml", text)) }
	work := func(reason string) {
		t.Helper()
		w.awaitWorks(t, []client.Object{o}, reason, func(s *v1alpha1.WorkStatus) bool {
			return slices.ContainsFunc(s.Conditions, func(c metav1.Condition) bool { return c.Type == v1alpha1.ConditionApplied && c.Reason == reason })
		})
	}

	apply(settings("settings", unknown))
	w.awaitPlacedReason(t, o, v1alpha1.ReasonUnknownCluster)
	t.Cleanup(func() { w.deleteAtEnd(t, cluster(unknown)) })
	apply("apiVersion: placement.patchbay.io/v1alpha1\nkind: Cluster\nmetadata: {name: " + unknown + "}\nspec: {accepted: true}\n")
	w.awaitPlacedReason(t, o, v1alpha1.ReasonWaitingForCluster)

	u.kubectl("annotate --overwrite configmap/settings placement.patchbay.io/clusters=east")
	work(v1alpha1.ReasonRefused)
	u.run(east, "kubectl label namespace "+u.ns+" "+v1alpha1.AccessLabel+"="+v1alpha1.AccessCreate)
	work(v1alpha1.ReasonAsExpected)
	w.awaitPlacedReason(t, o, v1alpha1.ReasonAsExpected)

	apply(placement("p", "east") + "---\n" + placement("q", "east"))
	u.kubectl("annotate configmap/settings placement.patchbay.io/clusters-")
	w.awaitPlacedReason(t, o, v1alpha1.ReasonPolicyTie)
	u.kubectl("delete placement q")
	w.awaitPlacedReason(t, o, v1alpha1.ReasonAsExpected)
	w.awaitClustersWith(t, o, "east")
}
