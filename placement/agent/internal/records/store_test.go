// SPDX-License-Identifier: Apache-2.0

package records

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

func record(name string, hub types.UID, objects ...v1alpha1.AppliedObject) *v1alpha1.AppliedWork {
	return &v1alpha1.AppliedWork{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)},
		Spec:       v1alpha1.AppliedWorkSpec{Work: v1alpha1.WorkSpec{HubUID: hub}}, Status: v1alpha1.AppliedWorkStatus{Objects: objects},
	}
}

func object(namespace, name string, uid types.UID) v1alpha1.AppliedObject {
	return v1alpha1.AppliedObject{Version: "v1", Resource: "configmaps", Kind: "ConfigMap", Namespace: namespace, Name: name, UID: uid}
}

// What a hub has placed is told from what another hub has placed, or the agent has released.
func TestPlaced(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&v1alpha1.AppliedWork{}).WithObjects(
		record("a", "hub", object("web", "a", "1"), object("web", "b", "2"), object("shop", "c", "3")),
		record("b", "hub", object("web", "d", "4"), object("early", "e", "")),
		record("c", "other", object("theirs", "f", "5")),
	).Build()
	r := New(c)
	if err := r.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	check := func(when string, wantPlaces map[place]bool, wantUIDs map[types.UID]bool) {
		t.Helper()
		for p, want := range wantPlaces {
			if got := r.InNamespace(p.namespace, p.hub); got != want {
				t.Errorf("%s: objects of %s in %s: got %t", when, p.hub, p.namespace, got)
			}
		}
		for uid, want := range wantUIDs {
			if got := r.AnyPlaced("hub", "unknown", uid); got != want {
				t.Errorf("%s: UID %q is placed by the hub: got %t", when, uid, got)
			}
		}
	}
	check("at the start",
		map[place]bool{{"web", "hub"}: true, {"shop", "hub"}: true, {"early", "hub"}: false, {"web", "other"}: false, {"theirs", "hub"}: false, {"theirs", "other"}: true, {"", "hub"}: false},
		map[types.UID]bool{"1": true, "3": true, "4": true, "5": false, "": false, "a": false})

	released := r.Get("a").DeepCopy()
	released.Status.Objects = released.Status.Objects[:1]
	if err := r.SaveStatus(t.Context(), released); err != nil {
		t.Fatal(err)
	}
	check("after the release of two objects",
		map[place]bool{{"web", "hub"}: true, {"shop", "hub"}: false}, map[types.UID]bool{"1": true, "2": false, "3": false})

	if _, err := r.SaveSpec(t.Context(), "a", v1alpha1.WorkSpec{HubUID: "other"}, ""); err != nil {
		t.Fatal(err)
	}
	if err := r.Delete(t.Context(), r.Get("b")); err != nil {
		t.Fatal(err)
	}
	check("after a record went to another hub, and one is gone",
		map[place]bool{{"web", "hub"}: false, {"web", "other"}: true}, map[types.UID]bool{"1": false, "4": false})
	if len(r.objectCount) != 2 {
		t.Errorf("got %v: the index must forget empty namespaces", r.objectCount)
	}
}
