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

func (b *bench) namespace(name string) string {
	b.t.Helper()
	b.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	return name
}

// runs waits until an object is asked of these clusters, with these replicas.
func (b *bench) runs(k Key, want map[string]int32) {
	b.t.Helper()
	b.eventually(fmt.Sprintf("%s to run in %v", k, want), func(ctx context.Context) error {
		got, err := b.works(ctx, k)
		if err != nil {
			return err
		}
		if diff := cmp.Diff(want, got); diff != "" {
			return fmt.Errorf("%w: %s", errNotYet, diff)
		}
		return nil
	})
}

func deploymentKey(ns, name string) Key {
	return Key{GroupKind: schema.GroupKind{Group: "apps", Kind: "Deployment"}, Namespace: ns, Name: name}
}

// One annotation places an object, with what it needs; another moves it; none is left.
func TestPlaceMoveAndDelete(t *testing.T) {
	b := newBench(t)
	ns := b.namespace("shop")
	b.cluster("shop-east", v1alpha1.ClusterSpec{})
	b.cluster("shop-west", v1alpha1.ClusterSpec{})
	b.create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "web"}, Data: map[string]string{"a": "b"}})
	b.create(&corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "web-svc"},
		Spec:       corev1.ServiceSpec{Selector: map[string]string{"app": "web"}, Ports: []corev1.ServicePort{{Port: 80}}},
	})
	d := deployment(ns, "web", "shop-east", 3)
	b.create(d)
	key := deploymentKey(ns, "web")
	config := Key{GroupKind: schema.GroupKind{Kind: "ConfigMap"}, Namespace: ns, Name: "web"}
	service := Key{GroupKind: schema.GroupKind{Kind: "Service"}, Namespace: ns, Name: "web-svc"}
	b.runs(key, map[string]int32{"shop-east": 3})
	b.runs(config, map[string]int32{"shop-east": 0})
	b.runs(service, map[string]int32{"shop-east": 0})
	b.eventually("the status at the hub", func(ctx context.Context) error {
		if err := b.client.Get(ctx, client.ObjectKeyFromObject(d), d); err != nil {
			return err
		}
		if d.Status.AvailableReplicas != 3 || d.Status.ObservedGeneration != d.Generation {
			return fmt.Errorf("%w: %+v", errNotYet, d.Status)
		}
		return nil
	})
	b.annotate(d, "shop-east=1,shop-west=2")
	b.runs(key, map[string]int32{"shop-east": 1, "shop-west": 2})
	b.runs(config, map[string]int32{"shop-east": 0, "shop-west": 0})
	b.annotate(d, "shop-west")
	b.runs(key, map[string]int32{"shop-west": 3})
	b.runs(config, map[string]int32{"shop-west": 0})
	b.runs(service, map[string]int32{"shop-west": 0})
	if err := b.client.Delete(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	b.runs(key, map[string]int32{})
	b.runs(config, map[string]int32{})
	b.eventually("the object to go", func(ctx context.Context) error {
		err := b.client.Get(ctx, client.ObjectKeyFromObject(d), d)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("%w: %w", errNotYet, err)
	})
}
