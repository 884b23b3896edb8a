// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package controllers

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/kinds"
)

func deployment(ns, name, clusters string, replicas int32) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, Annotations: map[string]string{v1alpha1.ClustersAnnotation: clusters}},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(replicas), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{
					Name: "app", Image: "app:1",
					EnvFrom: []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{
						LocalObjectReference: corev1.LocalObjectReference{Name: name},
					}}},
				}}},
			},
		},
	}
}

func (h *testHub) namespace(name string) string {
	h.t.Helper()
	h.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	return name
}

// expectWorks waits until these clusters, and no others, have a Work of an object, with these replicas.
func (h *testHub) expectWorks(k kinds.Key, want map[string]int32) {
	h.t.Helper()
	h.eventually(fmt.Sprintf("%s to run in %v", k, want), func(ctx context.Context) error {
		got, err := h.works(ctx, k)
		if err != nil {
			return err
		}
		if diff := cmp.Diff(want, got); diff != "" {
			return fmt.Errorf("%w: %s", errNotYet, diff)
		}
		return nil
	})
}

func deploymentKey(ns, name string) kinds.Key {
	return kinds.Key{GroupKind: schema.GroupKind{Group: "apps", Kind: "Deployment"}, Namespace: ns, Name: name}
}

// One annotation places an object with its dependencies, another one moves it, and its deletion
// removes it everywhere.
func TestPlaceMoveAndDelete(t *testing.T) {
	h := newTestHub(t)
	ns := h.namespace("shop")
	h.cluster("shop-east", v1alpha1.ClusterSpec{})
	h.cluster("shop-west", v1alpha1.ClusterSpec{})
	h.create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "web"}, Data: map[string]string{"a": "b"}})
	h.create(&corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "web-svc"},
		Spec:       corev1.ServiceSpec{Selector: map[string]string{"app": "web"}, Ports: []corev1.ServicePort{{Port: 80}}},
	})
	d := deployment(ns, "web", "shop-east", 3)
	h.create(d)
	key := deploymentKey(ns, "web")
	config := kinds.Key{GroupKind: schema.GroupKind{Kind: "ConfigMap"}, Namespace: ns, Name: "web"}
	service := kinds.Key{GroupKind: schema.GroupKind{Kind: "Service"}, Namespace: ns, Name: "web-svc"}
	h.expectWorks(key, map[string]int32{"shop-east": 3})
	h.expectWorks(config, map[string]int32{"shop-east": 0})
	h.expectWorks(service, map[string]int32{"shop-east": 0})
	h.eventually("the status at the hub", func(ctx context.Context) error {
		if err := h.client.Get(ctx, client.ObjectKeyFromObject(d), d); err != nil {
			return err
		}
		if d.Status.AvailableReplicas != 3 || d.Status.ObservedGeneration != d.Generation {
			return fmt.Errorf("%w: %+v", errNotYet, d.Status)
		}
		return nil
	})
	h.annotate(d, "shop-east=1,shop-west=2")
	h.expectWorks(key, map[string]int32{"shop-east": 1, "shop-west": 2})
	h.expectWorks(config, map[string]int32{"shop-east": 0, "shop-west": 0})
	h.annotate(d, "shop-west")
	h.expectWorks(key, map[string]int32{"shop-west": 3})
	h.expectWorks(config, map[string]int32{"shop-west": 0})
	h.expectWorks(service, map[string]int32{"shop-west": 0})
	if err := h.client.Delete(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	h.expectWorks(key, map[string]int32{})
	h.expectWorks(config, map[string]int32{})
	h.eventually("the object to be deleted", func(ctx context.Context) error {
		err := h.client.Get(ctx, client.ObjectKeyFromObject(d), d)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("%w: %w", errNotYet, err)
	})
}
