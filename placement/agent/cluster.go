// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// clusterEvery is how often the cluster's own figures are compared with what the hub has.
const clusterEvery = 5 * time.Second

// figures are what the hub hears of the cluster itself.
type figures struct {
	nodes, pods toolscache.Store
	versions    v1alpha1.Versions
	halt        *halt
}

// status computes the agent's part of the Cluster's status.
func (f *figures) status(hubUID string) v1alpha1.ClusterStatus {
	allocatable, requested := corev1.ResourceList{}, corev1.ResourceList{}
	for _, o := range f.nodes.List() {
		if node, ok := o.(*corev1.Node); ok && node.Status.Phase == corev1.NodeRunning { // see slimNode
			add(allocatable, node.Status.Allocatable)
		}
	}
	for _, o := range f.pods.List() {
		if pod, ok := o.(*corev1.Pod); ok && pod.Spec.NodeName != "" &&
			pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed {
			add(requested, pod.Spec.Overhead) // see slimPod
		}
	}
	mismatched := condition(v1alpha1.ConditionHubMismatch, false, v1alpha1.ReasonSettled, "")
	if why := f.halt.why(); why != "" {
		mismatched = condition(v1alpha1.ConditionHubMismatch, true, v1alpha1.ConditionHubMismatch, why)
	}
	versions := f.versions
	return v1alpha1.ClusterStatus{
		Allocatable: allocatable, Requested: requested, Versions: &versions, Leaves: 1, HubUID: hubUID,
		Conditions: []metav1.Condition{mismatched},
	}
}

// slimNode keeps what a node can carry; its phase is Running if it is ready and takes
// Pods.
func slimNode(o any) (any, error) {
	node, ok := o.(*corev1.Node)
	if !ok {
		return o, nil
	}
	slim := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node.Name, UID: node.UID, ResourceVersion: node.ResourceVersion}}
	slim.Status.Allocatable = corev1.ResourceList{}
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourcePods} {
		if q, ok := node.Status.Allocatable[name]; ok {
			slim.Status.Allocatable[name] = q
		}
	}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue && !node.Spec.Unschedulable {
			slim.Status.Phase = corev1.NodeRunning
		}
	}
	return slim, nil
}

// clusterReport applies the cluster's figures at the hub when they have changed.
type clusterReport struct {
	hub  dynamic.Interface
	name string
	last *v1alpha1.ClusterStatus
}

// send applies the status, unless it is what was sent last.
func (r *clusterReport) send(ctx context.Context, status v1alpha1.ClusterStatus) error {
	if r.last != nil {
		for i, c := range status.Conditions {
			if was := meta.FindStatusCondition(r.last.Conditions, c.Type); was != nil && was.Status == c.Status {
				status.Conditions[i].LastTransitionTime = was.LastTransitionTime
			}
		}
		if equality.Semantic.DeepEqual(*r.last, status) {
			return nil
		}
	}
	for i := range status.Conditions {
		if status.Conditions[i].LastTransitionTime.IsZero() {
			status.Conditions[i].LastTransitionTime = metav1.Now().Rfc3339Copy()
		}
	}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&status)
	if err != nil {
		return fmt.Errorf("encode status of the Cluster: %w", err)
	}
	o := &unstructured.Unstructured{Object: map[string]any{"status": fields}}
	o.SetGroupVersionKind(v1alpha1.SchemeGroupVersion().WithKind("Cluster"))
	o.SetName(r.name)
	_, err = r.hub.Resource(v1alpha1.SchemeGroupVersion().WithResource("clusters")).
		ApplyStatus(ctx, r.name, o, metav1.ApplyOptions{FieldManager: v1alpha1.AgentManager, Force: true})
	if err != nil {
		return fmt.Errorf("report on Cluster %s: %w", r.name, err)
	}
	r.last = &status
	return nil
}
