// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package kubectl

import (
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/hub"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

// `hub remove-finalizers` removes the hub's finalizer and no other, skips deleted objects, and fails while a hub
// runs.
func TestRelease(t *testing.T) {
	t.Parallel()
	env := apitest.Start(t)
	if err := hub.Install(t.Context(), env.Config); err != nil {
		t.Fatal(err)
	}
	c, _, err := adminFactory(env).placementClient()
	if err != nil {
		t.Fatal(err)
	}
	ns := env.Namespace(t)
	placed := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "placed", Finalizers: []string{"example.com/other", v1alpha1.PlacedFinalizer}}}
	objects := []client.Object{placed}
	for kind, name := range map[string]string{"ConfigMap": "placed", "Secret": "gone", "Nothing": "unknown"} {
		objects = append(objects, &v1alpha1.Assignment{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name},
			Spec: v1alpha1.AssignmentSpec{Object: v1alpha1.ObjectReference{
				Version: "v1", Kind: kind, Resource: strings.ToLower(kind) + "s", Namespace: ns, Name: name, UID: "1",
			}},
		})
	}
	holder, seconds, now := "one", int32(60), metav1.NowMicro()
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: agentNamespace, Name: v1alpha1.HubFieldManager},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds, RenewTime: &now},
	}
	for _, o := range append(objects, lease) {
		if err := c.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := removeFinalizers(t.Context(), c); err == nil || !strings.Contains(err.Error(), "runs as one") {
		t.Errorf("while a hub runs: got %v", err)
	}
	past := metav1.NewMicroTime(time.Now().Add(-time.Hour)) // the hub was killed
	lease.Spec.RenewTime = &past
	if err := c.Update(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	for _, want := range []int{1, 0} { // the second call has nothing to release
		if n, err := removeFinalizers(t.Context(), c); err != nil || n != want {
			t.Errorf("released %d, %v, want %d", n, err, want)
		}
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(placed), placed); err != nil || !slices.Equal(placed.Finalizers, []string{"example.com/other"}) {
		t.Errorf("finalizers %v, %v: want the other one kept", placed.Finalizers, err)
	}
	placed.Finalizers = nil
	if err := c.Update(t.Context(), placed); err != nil {
		t.Error(err)
	}
}
