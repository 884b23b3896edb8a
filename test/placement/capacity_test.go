// SPDX-License-Identifier: Apache-2.0

//go:build placement

package placement

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// kcp 7: a limit refuses, growth spills over and moves no replica, and what fits nowhere
// is Unschedulable.
func TestKCP7Capacity(t *testing.T) {
	w := shared
	ns := w.namespace(t)
	checkInvariants(t, w, ns)
	for _, name := range []string{"east", "west"} {
		w.patchCluster(t, name, `{"spec":{"limits":{"replicas":3}}}`)
		t.Cleanup(func() { w.patchCluster(t, name, `{"spec":{"limits":null}}`) })
	}
	w.apply(t, w.Hub.Client, ns, placement("two", "east, west")+"---\n"+plainDeployment("web", 2))
	w.awaitReplicas(t, ns, map[string]int32{"east": 1, "west": 1})
	w.awaitHubAvailable(t, ns, "web", 2)
	w.patchCluster(t, "east", `{"spec":{"limits":{"replicas":1}}}`)
	w.scale(t, ns, 4)
	w.awaitReplicas(t, ns, map[string]int32{"east": 1, "west": 3})
	w.scale(t, ns, 6)
	eventually(t, "two replicas fit nowhere", func() error {
		a, err := w.assignment(t.Context(), ns, "Deployment", "web")
		if err != nil {
			return err
		}
		c := meta.FindStatusCondition(a.Status.Conditions, v1alpha1.ConditionPlaced)
		if c == nil || c.Status != metav1.ConditionFalse || c.Reason != v1alpha1.ReasonUnschedulable {
			return fmt.Errorf("conditions %+v", a.Status.Conditions)
		}
		return nil
	})
	w.awaitReplicas(t, ns, map[string]int32{"east": 1, "west": 3})
}

// placement is a policy for all of a namespace.
func placement(name, clusters string) string {
	return fmt.Sprintf(`
apiVersion: placement.patchbay.io/v1alpha1
kind: Placement
metadata: {name: %s}
spec: {clusters: {names: [%s]}}
`, name, clusters)
}
