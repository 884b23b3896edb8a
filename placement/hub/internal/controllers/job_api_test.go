// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package controllers

import (
	"context"
	"fmt"
	"testing"
	"time"

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

// A Job that leaves a cluster is paused there with the completions of its part. The cluster's API
// server would reject those of the whole Job, and the Job would run on.
func TestPausedJobKeepsCompletions(t *testing.T) {
	h := newTestHub(t)
	ns := h.namespace("pause")
	h.cluster("pause-east", v1alpha1.ClusterSpec{})
	h.cluster("pause-west", v1alpha1.ClusterSpec{})
	wish := &v1alpha1.Placement{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "jobs"},
		Spec: v1alpha1.PlacementSpec{
			Clusters: v1alpha1.ClusterChoice{Names: []v1alpha1.ClusterName{"pause-east", "pause-west"}},
			Replicas: v1alpha1.ReplicaPolicy{Mode: v1alpha1.ReplicasDivide},
			Move:     v1alpha1.MovePolicy{Settle: &metav1.Duration{Duration: time.Hour}},
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
	asks("pause-east", 3, 2)
	asks("pause-west", 3, 2)
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"clusters":{"names":["pause-west"]}}}`))
	if err := h.client.Patch(t.Context(), wish, patch); err != nil {
		t.Fatal(err)
	}
	asks("pause-east", 3, 0)
}
