// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// install installs Patchbay by an Installation with the defaults, and returns when it is ready and the programs have
// stopped. The controller is not ready before there are webhooks, so it starts later.
func (c *cluster) install(ctx context.Context) error {
	for _, p := range []*program{c.daemon, c.operator} {
		if err := p.start(ctx, c.dir); err != nil {
			return err
		}
	}
	i := &unstructured.Unstructured{}
	i.SetGroupVersionKind(installationKind)
	i.SetName("patchbay")
	if err := c.env.Client.Create(ctx, i); err != nil {
		return fmt.Errorf("create Installation: %w", err)
	}
	if err := c.runPods(ctx); err != nil {
		return err
	}
	err := await(ctx, "the Installation to be ready", func(ctx context.Context) error {
		// The operator changes the DaemonSet during the roll-out.
		if err := c.acknowledge(ctx); err != nil {
			return err
		}
		if err := c.env.Client.Get(ctx, client.ObjectKeyFromObject(i), i); err != nil {
			return err
		}
		conditions, _, err := unstructured.NestedSlice(i.Object, "status", "conditions")
		for _, one := range conditions {
			if condition, _ := one.(map[string]any); condition["type"] == "Ready" && condition["status"] == "True" {
				return nil
			}
		}
		return errors.Join(err, fmt.Errorf("%w: %v", errNotReady, conditions))
	})
	if err != nil {
		return err
	}
	return c.stop(ctx)
}

// runPods creates the Pods of the DaemonSet, one on each node, as they are when they have been ready for an hour.
func (c *cluster) runPods(ctx context.Context) error {
	set := &appsv1.DaemonSet{}
	err := await(ctx, "the DaemonSet", func(ctx context.Context) error {
		return c.env.Client.Get(ctx, client.ObjectKey{Namespace: patchbaySystem, Name: c.daemon.name}, set)
	})
	if err != nil {
		return err
	}
	return each(ctx, c.nodes, func(ctx context.Context, i int) error {
		t := set.Spec.Template.DeepCopy()
		pod := &corev1.Pod{ObjectMeta: t.ObjectMeta, Spec: t.Spec}
		pod.Namespace, pod.Name = patchbaySystem, fmt.Sprintf("%s-%05d", set.Name, i)
		pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("DaemonSet"))}
		pod.Spec.NodeName = nodeName(i)
		if err := c.env.Client.Create(ctx, pod); err != nil {
			return fmt.Errorf("create Pod of the DaemonSet: %w", err)
		}
		pod.Status = runningStatus(pod)
		if err := c.env.Client.Status().Update(ctx, pod); err != nil {
			return fmt.Errorf("write status of the DaemonSet's Pod: %w", err)
		}
		return nil
	})
}

// runningStatus is the status of a Pod that has been ready for an hour.
func runningStatus(pod *corev1.Pod) corev1.PodStatus {
	began := metav1.NewTime(time.Now().Add(-time.Hour))
	s := corev1.PodStatus{Phase: corev1.PodRunning, StartTime: &began}
	for _, kind := range []corev1.PodConditionType{corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.PodReady, corev1.ContainersReady, corev1.PodScheduled} {
		s.Conditions = append(s.Conditions, corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: began})
	}
	for _, container := range pod.Spec.Containers {
		s.ContainerStatuses = append(s.ContainerStatuses, corev1.ContainerStatus{
			Name: container.Name, Image: container.Image, ImageID: container.Image + "@sha256:none", ContainerID: "containerd://" + string(pod.UID),
			Ready: true, Started: new(true), State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: began}},
		})
	}
	return s
}

// acknowledge writes the status of the DaemonSet and the Deployment as Kubernetes' controllers do when all Pods are
// ready.
func (c *cluster) acknowledge(ctx context.Context) error {
	set, nodes := &appsv1.DaemonSet{}, int32(c.nodes)
	if err := c.env.Client.Get(ctx, client.ObjectKey{Namespace: patchbaySystem, Name: c.daemon.name}, set); err != nil {
		return err
	}
	if set.Status.ObservedGeneration != set.Generation {
		set.Status = appsv1.DaemonSetStatus{
			ObservedGeneration: set.Generation, DesiredNumberScheduled: nodes, CurrentNumberScheduled: nodes, UpdatedNumberScheduled: nodes,
			NumberReady: nodes, NumberAvailable: nodes,
		}
		if err := c.env.Client.Status().Update(ctx, set); err != nil {
			return err
		}
	}
	deployment := &appsv1.Deployment{}
	if err := c.env.Client.Get(ctx, client.ObjectKey{Namespace: patchbaySystem, Name: c.controller.name}, deployment); err != nil {
		return err
	}
	if deployment.Status.ObservedGeneration == deployment.Generation {
		return nil
	}
	replicas := *deployment.Spec.Replicas
	deployment.Status = appsv1.DeploymentStatus{
		ObservedGeneration: deployment.Generation, Replicas: replicas, UpdatedReplicas: replicas, ReadyReplicas: replicas, AvailableReplicas: replicas,
	}
	return c.env.Client.Status().Update(ctx, deployment)
}
