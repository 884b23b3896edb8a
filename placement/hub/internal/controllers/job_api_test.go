// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package controllers

import (
	"context"
	"fmt"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/kinds"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/scope"
)

// A divided Job keeps its first division when a policy names other clusters: completions that have succeeded would run
// again.
func TestDividedJobStays(t *testing.T) {
	h := newTestHub(t)
	ns := h.namespace("parts")
	h.cluster("parts-east", v1alpha1.ClusterSpec{})
	h.cluster("parts-west", v1alpha1.ClusterSpec{})
	wish := &v1alpha1.Placement{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "jobs"},
		Spec: v1alpha1.PlacementSpec{
			Clusters: v1alpha1.ClusterChoice{Names: []v1alpha1.ClusterName{"parts-east", "parts-west"}},
			Replicas: v1alpha1.ReplicaPolicy{Mode: v1alpha1.ReplicasDivide},
		},
	}
	h.create(wish)
	h.create(&batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "sums"},
		Spec: batchv1.JobSpec{Completions: new(int32(6)), Parallelism: new(int32(4)), Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "sum", Image: "sum:1"}},
		}}},
	})
	key := kinds.Key{GroupKind: schema.GroupKind{Group: "batch", Kind: "Job"}, Namespace: ns, Name: "sums"}
	asks := func(cluster string, completions, parallelism int64) {
		t.Helper()
		h.eventually(fmt.Sprintf("%s to request %d completions, %d in parallel", cluster, completions, parallelism), func(ctx context.Context) error {
			w := &v1alpha1.Work{}
			if err := h.client.Get(ctx, key.Work(cluster), w); err != nil {
				return err
			}
			o, err := scope.ManifestOf(w)
			if err != nil {
				return err
			}
			c, _, _ := unstructured.NestedInt64(o.Object, "spec", "completions")
			p, _, _ := unstructured.NestedInt64(o.Object, "spec", "parallelism")
			if c != completions || p != parallelism {
				return fmt.Errorf("%w: %d, %d at a time", errNotYet, c, p)
			}
			return nil
		})
	}
	asks("parts-east", 3, 2)
	asks("parts-west", 3, 2)
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"clusters":{"names":["parts-west"]}}}`))
	if err := h.client.Patch(t.Context(), wish, patch); err != nil {
		t.Fatal(err)
	}
	h.expectReported(key, v1alpha1.ConditionPlaced, v1alpha1.ReasonRunsOnce, "it has started in parts-east, or may have, and does not run a second time: it stays there")
	asks("parts-east", 3, 2)
	asks("parts-west", 3, 2)
}
