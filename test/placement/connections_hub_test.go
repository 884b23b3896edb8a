// SPDX-License-Identifier: Apache-2.0

//go:build placement

package placement

import (
	"context"
	"errors"
	"fmt"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/test/lab/process"
	"github.com/patchbay-cni/patchbay/test/placement/bed"
)

// errorUnless is an error unless all is well.
func errorUnless(ok bool, format string, args ...any) error {
	if ok {
		return nil
	}
	return fmt.Errorf(format, args...)
}

// hubReplicas: of two hubs the one that leads is killed in the middle of a move, and the
// move completes.
func hubReplicas(t *testing.T) {
	w := shared
	if err := w.hub.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		var err error
		if w.hub, err = w.StartHub(context.Background()); err != nil {
			t.Error(err)
		}
	})
	first := w.startHubReplica(t, "patchbay-hub-1")
	leader := w.awaitLeader(t, "")
	w.startHubReplica(t, "patchbay-hub-2")

	ns := w.namespace(t)
	checkInvariants(t, w, ns)
	w.apply(t, w.Hub.Client, ns, deployment("web", 8, "east", "2s"))
	w.awaitReplicas(t, ns, map[string]int32{"east": 8})
	w.awaitHubAvailable(t, ns, "web", 8)
	w.annotate(t, object("apps/v1", "Deployment", ns, "web"), "west")
	w.awaitMoveInProgress(t, ns)
	if err := first.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.awaitMoveInProgress(t, ns) // it was not done yet
	w.awaitReplicas(t, ns, map[string]int32{"west": 8})
	w.awaitHubAvailable(t, ns, "web", 8)
	w.awaitLeader(t, leader)
}

// startHubReplica starts a hub that competes for the lead, until the test ends.
func (w *world) startHubReplica(t *testing.T, name string, flags ...string) process.ID {
	t.Helper()
	id, err := w.StartHubReplica(t.Context(), name, flags...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := id.Kill(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return id
}

// awaitLeader waits until somebody leads who is not the one that did before.
func (w *world) awaitLeader(t *testing.T, before string) string {
	t.Helper()
	var leads string
	eventually(t, "a hub leads, other than "+before, func() error {
		lease := &coordinationv1.Lease{}
		err := w.Hub.Client.Get(t.Context(), client.ObjectKey{Namespace: "patchbay-system", Name: "patchbay-hub"}, lease)
		if err != nil {
			return err
		}
		if lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "" || *lease.Spec.HolderIdentity == before {
			return errors.New("nobody else does")
		}
		leads = *lease.Spec.HolderIdentity
		return nil
	})
	return leads
}

// hubAddresses: an agent knows three addresses of the hub. Behind the first nobody is,
// what is behind the second is killed in the middle of a move.
func hubAddresses(t *testing.T) {
	w := shared
	second, err := w.Hub.StartAPIServer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	link := w.Clusters["east"].Link
	w.joinAgent(t, "east", bed.HubRoute{Hub: "https://127.0.0.1:1", FallbackHubs: []string{second.URL, link.URL()}})
	ns := w.namespace(t)
	checkInvariants(t, w, ns)
	before := link.Connections()
	w.apply(t, w.Hub.Client, ns, deployment("web", 4, "east", "2s"))
	w.awaitReplicas(t, ns, map[string]int32{"east": 4})
	w.awaitHubAvailable(t, ns, "web", 4)
	if link.Connections() != before {
		t.Error("the agent went on to the third address while the second was good")
	}
	w.annotate(t, object("apps/v1", "Deployment", ns, "web"), "west")
	w.awaitMoveInProgress(t, ns)
	if err := second.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.awaitReplicas(t, ns, map[string]int32{"west": 4})
	w.annotate(t, object("apps/v1", "Deployment", ns, "web"), "east")
	w.awaitReplicas(t, ns, map[string]int32{"east": 4})
	w.awaitHubAvailable(t, ns, "web", 4)
}
