// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package controllers

import (
	"context"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/kinds"
)

// (Safety 1) An object without a namespace stays in its clusters when its ClusterPlacement is deleted, and leaves when it
// is deleted itself, in whatever order the two go.
func TestClusterScopedObjectOutlivesPolicy(t *testing.T) {
	h := newTestHub(t)
	h.cluster("racks-east", v1alpha1.ClusterSpec{})
	h.create(&apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "racks.example.com"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "example.com", Scope: apiextensionsv1.ClusterScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "racks", Singular: "rack", Kind: "Rack", ListKind: "RackList"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", XPreserveUnknownFields: new(true),
				}},
			}},
		},
	})
	for name, tc := range map[string]struct {
		reason string
		lose   func(rack, policy client.Object)
		stays  bool
	}{
		"policy":         {"The loss of a policy orders nothing.", func(_, policy client.Object) { h.delete(policy) }, true},
		"object, policy": {"The object's deletion is the order.", func(rack, policy client.Object) { h.delete(rack); h.delete(policy) }, false},
		"policy, object": {"It is one when the policy is gone, too.", func(rack, policy client.Object) { h.delete(policy); h.delete(rack) }, false},
		"object":         {"The policy may stay.", func(rack, _ client.Object) { h.delete(rack) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			h := &testHub{t: t, client: h.client, timeout: h.timeout}
			rack := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Rack", "metadata": map[string]any{"generateName": "rack-"}}}
			h.eventually("the kind to be served", func(ctx context.Context) error { return h.client.Create(ctx, rack) })
			policy := &v1alpha1.ClusterPlacement{ObjectMeta: metav1.ObjectMeta{Name: rack.GetName()}}
			policy.Spec.Objects = []v1alpha1.ObjectSelector{{Group: "example.com", Kind: "Rack", Names: []v1alpha1.ObjectName{v1alpha1.ObjectName(rack.GetName())}}}
			policy.Spec.Clusters.Names = []v1alpha1.ClusterName{"racks-east"}
			h.create(policy)
			t.Cleanup(func() { _ = h.client.Delete(context.Background(), policy) })
			key := kinds.Key{GroupKind: schema.GroupKind{Group: "example.com", Kind: "Rack"}, Name: rack.GetName()}
			h.expectWorks(key, map[string]int32{"racks-east": 0})
			check := h.unremoved("")
			tc.lose(rack, policy)
			if !tc.stays {
				h.expectWorks(key, map[string]int32{})
				return
			}
			h.expectReported(key, v1alpha1.ConditionPlaced, v1alpha1.ReasonNoPolicy, "")
			check()
			h.delete(rack)
			h.expectWorks(key, map[string]int32{})
		})
	}
}
