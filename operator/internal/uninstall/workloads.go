// SPDX-License-Identifier: Apache-2.0

package uninstall

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/operator/internal/apply"
	"github.com/patchbay-cni/patchbay/operator/internal/render"
)

// The names of the Deployments, which are also the labels of their Pods.
const (
	controllerName = "patchbay-controller"
	agentName      = "patchbay-agent"
)

// overdueAfter is how long after its grace period a Pod counts as one that does not end, and how long Kubernetes may take to
// delete the Pods of a Deployment that was deleted.
const overdueAfter = time.Minute

// workloads reads the Deployments of controller and agent, and their Pods. The Pods of those that the operator has applied
// must end before their rights are removed. Others do not end: their Deployments stay.
type workloads struct {
	client.Reader

	now   time.Time
	facts *Facts
	// others are when the Deployments of Facts.Others were created, by name.
	others map[string]time.Time
}

// deployments finds the Deployments of controller and agent that the operator has not applied.
func (w *workloads) deployments(ctx context.Context) error {
	f := w.facts
	objects, err := listWorkloads(ctx, w, "Deployment", f.NamespaceEnding)
	for k := range objects {
		if o := &objects[k]; (o.Name == controllerName || o.Name == agentName) && !apply.IsApplied(o) {
			w.others[o.Name] = o.CreationTimestamp.Time
			f.Others = append(f.Others, o.Namespace+"/"+o.Name)
		}
	}
	return err
}

// listWorkloads lists the objects of a kind of apps/v1 in the programs' namespace. While the namespace is being deleted, the
// operator may have no rights there.
func listWorkloads(ctx context.Context, c client.Reader, kind string, ending bool) ([]metav1.PartialObjectMetadata, error) {
	list := listOf(schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: kind})
	err := c.List(ctx, list, client.InNamespace(render.Namespace))
	switch {
	case ending && apierrors.IsForbidden(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("list %ss: %w", kind, err)
	}
	return list.Items, nil
}

// pod reads a Pod of controller or agent. One that takes too long to end is not waited for: it loses its rights.
func (w *workloads) pod(pod *corev1.Pod, program string) {
	owner := metav1.GetControllerOf(pod)
	switch {
	case isOverdue(pod, w.now) || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed:
	case owner == nil || owner.Kind != "ReplicaSet":
		w.facts.Foreign = append(w.facts.Foreign, podOnNode(pod))
	case !w.isOfOther(pod, program):
		w.facts.ProgramPods = append(w.facts.ProgramPods, fmt.Sprintf("%s/%s of ReplicaSet %s", pod.Namespace, pod.Name, owner.Name))
	}
}

// isOfOther reports whether a Pod of a ReplicaSet is of a Deployment that the operator has not applied. It is not if it
// ends, or if that Deployment is new: it may be of the one that the operator has deleted, whose Pods Kubernetes is about to
// delete.
func (w *workloads) isOfOther(pod *corev1.Pod, program string) bool {
	created, ok := w.others[program]
	return ok && pod.DeletionTimestamp == nil && w.now.After(created.Add(overdueAfter))
}

func podOnNode(pod *corev1.Pod) string {
	return pod.Namespace + "/" + pod.Name + " on node " + pod.Spec.NodeName
}

// isOverdue reports whether a Pod takes too long to end.
func isOverdue(pod *corev1.Pod, now time.Time) bool {
	return pod.DeletionTimestamp != nil && now.After(pod.DeletionTimestamp.Add(overdueAfter))
}

// needs reports whether a definition is that of the records of an agent that stays: without them, it could not remove what
// its hub has placed.
func (w *workloads) needs(definition metav1.PartialObjectMetadata) bool {
	_, stays := w.others[agentName]
	return stays && definition.Name == "appliedworks.placement.patchbay.io"
}
