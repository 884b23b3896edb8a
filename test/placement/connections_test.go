// SPDX-License-Identifier: Apache-2.0

//go:build placement

package placement

import (
	"context"
	"errors"
	"flag"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// KubeStellar, connections inward, load balancers, proxies: agents dial, whatever is on
// their way, and nothing dials them. It restarts agents and hub: nothing runs beside it.
func TestKubeStellarInwardConnections(t *testing.T) {
	t.Run("LinkCut", linkCut)
	t.Run("Through", testProxiesAndBalancers)
	t.Run("HubReplicas", hubReplicas)
	t.Run("HubAddresses", hubAddresses)
	t.Run("DebugReplicas", debugReplicas)
}

// linkCutDuration is how long a link is cut at least.
var linkCutDuration = flag.Duration("away", 0, "how long the hub is away from an agent")

// linkCut: while the link is cut objects stay and are repaired; after that the hub's
// changes arrive.
func linkCut(t *testing.T) {
	w := shared
	ns := w.namespace(t)
	x := checkInvariants(t, w, ns)
	east := w.Clusters["east"]
	w.apply(t, w.Hub.Client, ns, deployment("web", 2, "east", ""))
	w.awaitHubAvailable(t, ns, "web", 2)
	east.Link.Cut()
	t.Cleanup(east.Link.Heal)
	before := &appsv1.Deployment{}
	if err := east.Client.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "web"}, before); err != nil {
		t.Fatal(err)
	}
	x.allowUnavailable = true
	if err := east.Client.Delete(t.Context(), before); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the agent repairs without the hub", func() error {
		now := &appsv1.Deployment{}
		err := east.Client.Get(t.Context(), client.ObjectKeyFromObject(before), now)
		if err == nil && now.UID == before.UID {
			err = errors.New("the old one is still there")
		}
		return err
	})
	w.scale(t, ns, 3)
	time.Sleep(*linkCutDuration)
	east.Link.Heal()
	mended := time.Now()
	w.awaitReplicas(t, ns, map[string]int32{"east": 3})
	t.Logf("the hub's change arrived %s after the link was mended", time.Since(mended).Round(time.Second/10))
	w.awaitHubAvailable(t, ns, "web", 3)
}

// awaitHeartbeat waits for the heartbeat of an agent.
func (w *world) awaitHeartbeat(t *testing.T, cluster, identity string) {
	t.Helper()
	key := client.ObjectKey{Namespace: v1alpha1.ClusterNamespacePrefix + cluster, Name: v1alpha1.HeartbeatLease}
	eventually(t, "the hub hears of agent "+identity, func() error {
		lease := &coordinationv1.Lease{}
		err := w.Hub.Client.Get(context.Background(), key, lease)
		if err == nil && (lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity != identity) {
			err = errors.New("it hears of another")
		}
		return err
	})
}

// userWorkflow is what users do, in a cluster and another one: apply, divide, move, back. It
// leaves a Deployment web with 4 replicas in the first.
func (w *world) userWorkflow(t *testing.T, ns, here, there string) {
	t.Helper()
	web := func() client.Object { return object("apps/v1", "Deployment", ns, "web") }
	w.apply(t, w.Hub.Client, ns, deployment("web", 4, here, "1s"))
	for _, step := range []struct {
		clusters string
		want     map[string]int32
	}{
		{here, map[string]int32{here: 4}},
		{here + "," + there, map[string]int32{here: 2, there: 2}},
		{there, map[string]int32{there: 4}},
		{here, map[string]int32{here: 4}},
	} {
		w.annotate(t, web(), step.clusters)
		w.awaitReplicas(t, ns, step.want)
		w.awaitHubAvailable(t, ns, "web", 4)
	}
}
