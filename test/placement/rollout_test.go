// SPDX-License-Identifier: Apache-2.0

//go:build placement

package placement

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// KubeStellar, exact for one: through a rollout each status at the hub is one that the
// cluster had, in the cluster's order, and says that the hub's present generation is
// observed only when the cluster's controller had seen it.
func TestKubeStellarExactThroughRollout(t *testing.T) {
	t.Parallel()
	w := shared
	ns := w.namespace(t)
	x := checkInvariants(t, w, ns)
	w.apply(t, w.Hub.Client, ns, deployment("web", 4, "east", "2s"))
	w.awaitHubAvailable(t, ns, "web", 4)
	w.patch(t, ns, "web", `{"spec":{"paused":true,"template":{"spec":{"containers":[{"name":"c","image":"registry.example/app:2"}]}}}}`)
	w.awaitExact(t, ns, "web")
	w.patch(t, ns, "web", `{"spec":{"paused":false}}`)
	if out, err := w.Hub.Kubectl(t.Context(), "rollout", "status", "deployment/web", "--timeout=220s", "-n", ns); err != nil {
		t.Fatalf("rollout status: %v\n%s", err, out)
	}
	w.awaitExact(t, ns, "web")
	x.settle(t)
	inOrder(x.writes)
	there, here := statuses(t, x.writes, "east"), statuses(t, x.writes, "")
	if d := here[0].Status; d.Replicas == 0 && d.ObservedGeneration <= 1 {
		here = here[1:] // before any cluster has reported there is nothing to be exact about
	}
	at := 0
	for i, d := range here {
		at = indexOfStatus(there, d, at)
		if at < 0 {
			t.Fatalf("status %d of %d at the hub is none that east had, in this order: %+v", i+1, len(here), d.Status)
		}
		if !observes(d, there[at]) {
			t.Errorf("status %d at the hub: observed generation %d of image %s, but east's controller had seen image %s, generation %d of %d",
				i+1, d.Status.ObservedGeneration, imageOf(d), imageOf(there[at]), there[at].Status.ObservedGeneration, there[at].Generation)
		}
	}
	if want := 3; len(here) < want { // the former image, the rollout while it is paused, the new image
		t.Errorf("got %d statuses at the hub, want at least %d: it waits for none between", len(here), want)
	}
	t.Logf("%d statuses in east, %d at the hub, each deep-equal to one of them", len(there), len(here))
}

// patch changes a Deployment at the hub.
func (w *world) patch(t *testing.T, ns, name, change string) {
	t.Helper()
	patch := client.RawPatch(types.StrategicMergePatchType, []byte(change))
	if err := w.Hub.Client.Patch(t.Context(), object("apps/v1", "Deployment", ns, name), patch); err != nil {
		t.Fatal(err)
	}
}

// statuses are the Deployments of a cluster, or of the hub, after each write; at the hub
// those of the status only.
func statuses(t *testing.T, all []write, cluster string) []appsv1.Deployment {
	t.Helper()
	var found []appsv1.Deployment
	for _, one := range all {
		if one.cluster != cluster || one.Resource != "deployments" || one.Object.GetUID() == "" || cluster == "" && one.Subresource != "status" {
			continue
		}
		d := appsv1.Deployment{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(one.Object.Object, &d); err != nil {
			t.Fatal(err)
		}
		found = append(found, d)
	}
	return found
}

// indexOfStatus returns the first Deployment from that one on that has this status, apart from the
// generation; -1 for none.
func indexOfStatus(all []appsv1.Deployment, d appsv1.Deployment, from int) int {
	for i := from; i < len(all); i++ {
		status := all[i].Status
		status.ObservedGeneration = d.Status.ObservedGeneration
		if cmp.Equal(status, d.Status) {
			return i
		}
	}
	return -1
}

// observes tells whether what the hub says is observed follows from what the cluster has:
// its controller has seen the same template, or the hub speaks of an earlier one.
func observes(here, there appsv1.Deployment) bool {
	if here.Status.ObservedGeneration < here.Generation {
		return true
	}
	return imageOf(here) == imageOf(there) && there.Status.ObservedGeneration >= there.Generation
}

func imageOf(d appsv1.Deployment) string { return d.Spec.Template.Spec.Containers[0].Image }
