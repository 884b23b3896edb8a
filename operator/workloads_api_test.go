// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package operator

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/operator/internal/render"
)

// workloads does what Kubernetes' controllers and kubelets do for the programs: it replaces the Pods of the
// DaemonSet by the rules of kube-controller-manager (pkg/controller/daemon/update.go, rollingUpdate), and makes
// them ready, unless their image has "bad" in its name. It makes no Pods with the account "missing". Deployments are ready at once.
type workloads struct {
	c     client.Client
	nodes []string
}

// startWorkloads runs until the test ends.
func startWorkloads(t *testing.T, c *cluster, nodes int) {
	t.Helper()
	w := &workloads{c: c.admin}
	for i := range nodes {
		w.nodes = append(w.nodes, fmt.Sprintf("node-%d", i+1))
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var done sync.WaitGroup
	done.Go(func() {
		for ctx.Err() == nil {
			// A conflict, or an object that is not there yet, is for the next round.
			_ = w.daemonSet(ctx)
			_ = w.deployments(ctx)
			select {
			case <-ctx.Done():
			case <-time.After(50 * time.Millisecond):
			}
		}
	})
	t.Cleanup(func() { cancel(); done.Wait() })
}

func isPodReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// isAvailable reports whether a Pod has been ready for as long as its DaemonSet wants.
func isAvailable(pod *corev1.Pod, ds *appsv1.DaemonSet) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue && time.Since(c.LastTransitionTime.Time) >= time.Duration(ds.Spec.MinReadySeconds)*time.Second
	})
}

// daemonSet makes one step of a roll-out.
func (w *workloads) daemonSet(ctx context.Context) error {
	ds := &appsv1.DaemonSet{}
	if err := w.c.Get(ctx, client.ObjectKey{Namespace: render.Namespace, Name: "patchbayd"}, ds); err != nil {
		return err
	}
	if ds.DeletionTimestamp != nil {
		return w.end(ctx, ds)
	}
	pods := &corev1.PodList{}
	if err := w.c.List(ctx, pods, client.InNamespace(render.Namespace), client.MatchingLabels(ds.Spec.Selector.MatchLabels)); err != nil {
		return err
	}
	byNode := map[string]*corev1.Pod{}
	for i := range pods.Items {
		byNode[pods.Items[i].Spec.NodeName] = &pods.Items[i]
	}
	hash := ds.Spec.Template.Annotations[render.TemplateAnnotation]
	status := appsv1.DaemonSetStatus{ObservedGeneration: ds.Generation, DesiredNumberScheduled: int32(len(w.nodes)), CurrentNumberScheduled: int32(len(byNode))}
	unavailable := 0
	var replace, candidates []*corev1.Pod
	for _, node := range w.nodes {
		pod := byNode[node]
		switch {
		case pod == nil:
			unavailable++
			if ds.Spec.Template.Spec.ServiceAccountName == "missing" {
				continue
			}
			if err := w.createPod(ctx, ds, node); err != nil {
				return err
			}
		case pod.Annotations[render.TemplateAnnotation] == hash:
			status.UpdatedNumberScheduled++
			if !isAvailable(pod, ds) {
				unavailable++
			}
		case !isAvailable(pod, ds):
			replace = append(replace, pod) // an old Pod that is not available is always replaced
			unavailable++
		default:
			candidates = append(candidates, pod)
		}
		if pod != nil && isPodReady(pod) {
			status.NumberReady++
		}
		if pod != nil && isAvailable(pod, ds) {
			status.NumberAvailable++
		}
	}
	if ds.Spec.UpdateStrategy.Type == appsv1.RollingUpdateDaemonSetStrategyType {
		most, err := intstr.GetScaledValueFromIntOrPercent(ds.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable, len(w.nodes), true)
		if err != nil {
			return err
		}
		replace = append(replace, candidates[:min(len(candidates), max(0, most-unavailable))]...)
	}
	if ds.Spec.UpdateStrategy.Type == appsv1.OnDeleteDaemonSetStrategyType {
		replace = nil
	}
	for _, pod := range replace {
		if err := w.c.Delete(ctx, pod, client.GracePeriodSeconds(0)); err != nil {
			return err
		}
	}
	ds.Status = status
	return w.c.Status().Update(ctx, ds)
}

// createPod creates the Pod of a node, as it is some time later.
func (w *workloads) createPod(ctx context.Context, ds *appsv1.DaemonSet, node string) error {
	t := ds.Spec.Template.DeepCopy()
	pod := &corev1.Pod{ObjectMeta: t.ObjectMeta, Spec: t.Spec}
	pod.Namespace, pod.GenerateName, pod.OwnerReferences = render.Namespace, "patchbayd-", ownerOf(ds.Name)
	pod.Spec.NodeName = node
	if err := w.c.Create(ctx, pod); err != nil {
		return err
	}
	now := metav1.Now()
	pod.Status.Phase, pod.Status.StartTime = corev1.PodRunning, &now
	ready := corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: now}
	for _, c := range pod.Spec.Containers {
		state := corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}}
		if strings.Contains(c.Image, "bad") {
			state = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "no such image"}}
			ready.Status, pod.Status.Phase = corev1.ConditionFalse, corev1.PodPending
		}
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{Name: c.Name, Image: c.Image, State: state})
	}
	pod.Status.Conditions = []corev1.PodCondition{ready}
	return w.c.Status().Update(ctx, pod)
}

// deployments makes all Deployments ready.
func (w *workloads) deployments(ctx context.Context) error {
	all := &appsv1.DeploymentList{}
	if err := w.c.List(ctx, all, client.InNamespace(render.Namespace)); err != nil {
		return err
	}
	for i := range all.Items {
		d := &all.Items[i]
		if d.Status.ObservedGeneration == d.Generation {
			continue
		}
		replicas := *cmp.Or(d.Spec.Replicas, new(int32))
		d.Status = appsv1.DeploymentStatus{ObservedGeneration: d.Generation, Replicas: replicas, UpdatedReplicas: replicas, ReadyReplicas: replicas, AvailableReplicas: replicas}
		if err := w.c.Status().Update(ctx, d); err != nil {
			return err
		}
	}
	return nil
}
