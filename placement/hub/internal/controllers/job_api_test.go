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
)

// A Job that leaves a cluster is paused there with the completions of its part: with
// those of the whole the cluster's API server would refuse it, and it would run on.
func TestJobIsPausedAsItWas(t *testing.T) {
	b := newBench(t)
	ns := b.namespace("pause")
	b.cluster("pause-east", v1alpha1.ClusterSpec{})
	b.cluster("pause-west", v1alpha1.ClusterSpec{})
	wish := &v1alpha1.Placement{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "jobs"},
		Spec: v1alpha1.PlacementSpec{
			Clusters: v1alpha1.ClusterChoice{Names: []v1alpha1.ClusterName{"pause-east", "pause-west"}},
			Replicas: v1alpha1.ReplicaPolicy{Mode: v1alpha1.ReplicasDivide},
			Move:     v1alpha1.MovePolicy{Settle: &metav1.Duration{Duration: time.Hour}},
		},
	}
	b.create(wish)
	b.create(&batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "sums"},
		Spec: batchv1.JobSpec{Completions: new(int32(6)), Parallelism: new(int32(4)), Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "sum", Image: "sum:1"}},
		}}},
	})
	key := Key{GroupKind: schema.GroupKind{Group: "batch", Kind: "Job"}, Namespace: ns, Name: "sums"}
	asks := func(cluster string, completions, parallelism int64) {
		t.Helper()
		b.eventually(fmt.Sprintf("%s to be asked for %d, %d at a time", cluster, completions, parallelism), func(ctx context.Context) error {
			w := &v1alpha1.Work{}
			if err := b.client.Get(ctx, key.work(cluster), w); err != nil {
				return err
			}
			o, err := manifestOf(w)
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
	if err := b.client.Patch(t.Context(), wish, patch); err != nil {
		t.Fatal(err)
	}
	asks("pause-east", 3, 0)
}
