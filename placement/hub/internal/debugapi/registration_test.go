// SPDX-License-Identifier: Apache-2.0

package debugapi

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// Only what a hub has made is removed: a person may have made the Service.
func TestUnregister(t *testing.T) {
	t.Parallel()
	for _, managed := range []string{"true", ""} {
		objects := (&registration{host: "hub", port: 1}).objects(nil)
		c := fake.NewClientBuilder().Build()
		for _, o := range objects {
			o.SetLabels(map[string]string{v1alpha1.ManagedLabel: managed})
			if err := c.Create(t.Context(), o.DeepCopy()); err != nil {
				t.Fatal(err)
			}
		}
		if err := (Unregister{Direct: c}).Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, o := range objects {
			stored := &unstructured.Unstructured{}
			stored.SetGroupVersionKind(o.GroupVersionKind())
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(o), stored); apierrors.IsNotFound(err) != (managed == "true") {
				t.Errorf("%s with the label %q: got %v", o.GetKind(), managed, err)
			}
		}
	}
}

// A registration that is as it should be is not written again.
func TestIsApplied(t *testing.T) {
	t.Parallel()
	want := (&registration{host: "hub", port: 1}).objects([]byte("CA"))
	other := (&registration{host: "other", port: 2}).objects([]byte("CA"))
	for i := range want {
		stored := want[i].DeepCopy()
		_ = unstructured.SetNestedField(stored.Object, "set by the API server", "spec", "sessionAffinity")
		if !isApplied(stored, want[i]) || isApplied(other[i], want[i]) {
			t.Errorf("%s: the same %v, another one %v", want[i].GetKind(), isApplied(stored, want[i]), isApplied(other[i], want[i]))
		}
	}
}
