// SPDX-License-Identifier: Apache-2.0

//go:build placement

package placement

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// testLostCluster: a cluster falls silent. While more than a third of the clusters is silent, nothing is assumed lost.
// Then others replace its replicas, and its target stays as Lost. What must run in one cluster follows only after
// kubectl patchbay cluster declare-lost. When it returns, it loses what others have got, once they are available, and
// another outage moves nothing.
func testLostCluster(t *testing.T) {
	w := shared
	u := w.user(t)
	hub := w.Hub.ControlPlane.AdminKubeconfig()
	ghosts := []string{"ghost-a-" + u.ns, "ghost-b-" + u.ns, "ghost-c-" + u.ns}
	var silent strings.Builder
	for _, name := range ghosts { // they have reported once
		t.Cleanup(func() { w.deleteAtEnd(t, cluster(name)) })
		fmt.Fprintf(&silent, "---\napiVersion: placement.patchbay.io/v1alpha1\nkind: Cluster\nmetadata: {name: %s}\nspec: {accepted: true}\n", name)
	}
	u.kubectl("apply -f " + u.file("ghosts.yaml", silent.String()))
	for _, name := range ghosts {
		u.kubectl("wait --for=create namespace/cluster-" + name + " --timeout=200s")
		u.run(hub, "kubectl apply -f "+u.file(name+".yaml", fmt.Sprintf(`{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {namespace: cluster-%[1]s, name: %[2]s},
spec: {holderIdentity: %[1]s, leaseDurationSeconds: 1, renewTime: %[3]q}}`, name, v1alpha1.HeartbeatLease, time.Now().UTC().Format("2006-01-02T15:04:05.000000Z"))))
		u.kubectl(`wait --for=jsonpath='{.status.conditions[?(@.type=="Reachable")].reason}'=HeartbeatLost cluster/` + name + " --timeout=200s")
	}
	u.kubectl("apply -f " + u.file("objects.yaml", plainDeployment("web", 6)+`---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: queue}
spec:
  selector: {matchLabels: {app: queue}}
  serviceName: queue
  template:
    metadata: {labels: {app: queue}}
    spec: {containers: [{name: queue, image: "queue:1"}]}
---
apiVersion: placement.patchbay.io/v1alpha1
kind: Placement
metadata: {name: all}
spec: {clusters: {names: [south, west]}, offline: {assumeLostAfter: 20s}}
`))
	w.awaitReplicas(t, u.ns, map[string]int32{"south": 3, "west": 3})
	w.awaitHubAvailable(t, u.ns, "web", 6)
	queue := object("apps/v1", "StatefulSet", u.ns, "queue")
	w.awaitClustersWith(t, queue, "south")

	w.silence(t, u, "south")
	web := object("apps/v1", "Deployment", u.ns, "web")
	w.awaitPlacedReason(t, web, v1alpha1.ReasonWaitingForCluster)
	u.awaitPlacedMessage("Deployment", "web", "4 of 6 clusters do not report, which is more than a third")
	w.awaitReplicas(t, u.ns, map[string]int32{"south": 3, "west": 3})
	for _, name := range ghosts { // an admin knows better
		u.kubectl("delete cluster " + name)
	}
	w.awaitReplicas(t, u.ns, map[string]int32{"south": 3, "west": 6})
	u.awaitSummary("Deployment", "web", "south=3 (Lost), west=6")
	w.awaitHubAvailable(t, u.ns, "web", 6)
	u.awaitPlacedMessage("StatefulSet", "queue", "kubectl patchbay cluster declare-lost south")

	page := u.fromPage("kubectl patchbay cluster declare-lost", "declare-lost east", "declare-lost south")
	if out := u.run(hub, page[0]); !strings.Contains(out, "StatefulSet "+u.ns+"/queue, which must run in one cluster at a time") {
		t.Errorf("dry run: got %q", out)
	}
	w.awaitClustersWith(t, queue, "south")
	u.run(hub, page[1])
	t.Cleanup(func() { w.patchCluster(t, "south", `{"spec":{"declaredLost":null}}`) })
	w.awaitClustersWith(t, queue, "south,west")
	u.awaitSummary("StatefulSet", "queue", "south (Lost)")
	u.run(w.Clusters["west"].ControlPlane.AdminKubeconfig(), "kubectl wait --for=condition=Ready pod/queue-0 --timeout=200s -n "+u.ns)

	w.restoreLink(t, "south")
	w.awaitClustersWith(t, queue, "west")
	w.awaitReplicas(t, u.ns, map[string]int32{"west": 6})
	u.kubectl("wait --for=condition=DeclaredLost=false cluster/south --timeout=200s")
	u.run(hub, "kubectl patchbay cluster declare-lost south --undo")
	w.silence(t, u, "south")
	w.restoreLink(t, "south")
	w.awaitReplicas(t, u.ns, map[string]int32{"west": 6})
	w.awaitClustersWith(t, queue, "west")
}

// silence cuts a cluster's link until the end of the test, and waits until the hub reports that. The agent cannot renew
// its heartbeat any more: a shorter lease only makes that faster.
func (w *world) silence(t *testing.T, u *user, name string) {
	t.Helper()
	w.Clusters[name].Link.Cut()
	t.Cleanup(func() { w.restoreLink(t, name) })
	u.kubectl("-n cluster-" + name + " patch lease " + v1alpha1.HeartbeatLease + ` --type=merge -p '{"spec":{"leaseDurationSeconds":1}}'`)
	u.kubectl("wait --for=condition=Reachable=false cluster/" + name + " --timeout=200s")
}

// awaitPlacedMessage waits until the condition Placed of an object's Assignment has a text.
func (u *user) awaitPlacedMessage(kind, name, text string) {
	u.t.Helper()
	eventually(u.t, fmt.Sprintf("%s says %q", name, text), func() error {
		a, err := u.w.assignment(u.t.Context(), u.ns, kind, name)
		if err != nil {
			return err
		}
		c := meta.FindStatusCondition(a.Status.Conditions, v1alpha1.ConditionPlaced)
		return errorUnless(c != nil && strings.Contains(c.Message, text), "%+v", c)
	})
}

// awaitSummary waits until the summary of an object's Assignment has a text.
func (u *user) awaitSummary(kind, name, text string) {
	u.t.Helper()
	eventually(u.t, fmt.Sprintf("the summary of %s has %q", name, text), func() error {
		a, err := u.w.assignment(u.t.Context(), u.ns, kind, name)
		if err != nil {
			return err
		}
		return errorUnless(strings.Contains(a.Status.Summary, text), "%q", a.Status.Summary)
	})
}
