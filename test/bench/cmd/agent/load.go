// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// fill makes the objects at the hub and waits until all are ready in the cluster.
func (l *lab) fill(ctx context.Context) error {
	for i := range l.works {
		var o client.Object = configMap(i)
		if i%2 == 0 {
			o = deployment(i, int32(l.replicas))
		}
		o.SetNamespace(metav1.NamespaceDefault)
		o.SetAnnotations(map[string]string{v1alpha1.ClustersAnnotation: east})
		if err := l.bed.Hub.Client.Create(ctx, o); err != nil {
			return fmt.Errorf("create %s: %w", o.GetName(), err)
		}
	}
	for {
		var list v1alpha1.WorkList
		if err := l.bed.Hub.Client.List(ctx, &list); err != nil {
			return fmt.Errorf("list Works: %w", err)
		}
		ready := 0
		for _, w := range list.Items {
			if w.Status.Revision == w.Spec.Revision && meta.IsStatusConditionTrue(w.Status.Conditions, v1alpha1.ConditionReady) {
				ready++
			}
		}
		if ready == l.works {
			return nil
		}
		if err := sleepContext(ctx, time.Second); err != nil {
			return fmt.Errorf("await %d Works, %d are ready: %w", l.works, ready, err)
		}
	}
}

func configMap(i int) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("config-", i)},
		Data:       map[string]string{"filler": strings.Repeat("x", 1024)},
	}
}

func deployment(i int, replicas int32) *appsv1.Deployment {
	labels := map[string]string{"app": strconv.Itoa(i)}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("app-", i)},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "app:1"}}},
			},
		},
	}
}
