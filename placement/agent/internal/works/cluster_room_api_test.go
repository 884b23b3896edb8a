// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package works_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// Agents are upgraded before their hub: one of an earlier version still gets all that it knows of the cluster.
func TestRoomAtOlderHub(t *testing.T) {
	t.Parallel()
	b := prepare(t)
	crd := &unstructured.Unstructured{}
	crd.SetAPIVersion("apiextensions.k8s.io/v1")
	crd.SetKind("CustomResourceDefinition")
	if err := b.Get(t.Context(), client.ObjectKey{Name: "clusters.placement.patchbay.io"}, crd); err != nil {
		t.Fatal(err)
	}
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	version, _ := versions[0].(map[string]any)
	unstructured.RemoveNestedField(version, "schema", "openAPIV3Schema", "properties", "status", "properties", "room")
	if err := unstructured.SetNestedSlice(crd.Object, versions, "spec", "versions"); err != nil {
		t.Fatal(err)
	}
	if err := b.Update(t.Context(), crd); err != nil {
		t.Fatal(err)
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Status: corev1.NodeStatus{
		Allocatable: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("8Gi"), corev1.ResourcePods: resource.MustParse("110")},
		Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
	}}
	if err := b.Create(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	if err := b.Status().Update(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	b.run(t)
	eventually(t, "an earlier hub has the resources", func() error {
		c := &v1alpha1.Cluster{}
		if err := b.Get(t.Context(), client.ObjectKey{Name: "east"}, c); err != nil {
			return err
		}
		if c.Status.Allocatable.Cpu().Value() != 4 || c.Status.Room != nil {
			return fmt.Errorf("the status is %+v", c.Status)
		}
		return nil
	})
}
