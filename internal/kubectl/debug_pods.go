// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// podSelection selects the Pods of an object in a cluster.
type podSelection struct {
	// pod is the name of the only one; "" if the others select.
	pod string
	// selector is one of labels; "" for none.
	selector string
	// controllers are the UIDs of the objects that control the Pods; nil for any.
	controllers map[types.UID]bool
}

// selects tells whether a Pod that the selector has selected belongs to the object. Another workload may have the same
// labels.
func (s *podSelection) selects(pod metav1.Object) bool {
	if s.controllers == nil {
		return s.pod == "" || s.pod == pod.GetName()
	}
	controller := metav1.GetControllerOf(pod)
	return controller != nil && s.controllers[controller.UID]
}

func podResource() schema.GroupVersionResource { return corev1.SchemeGroupVersion.WithResource("pods") }

// selection reads the object in the cluster, because a Job and the objects that own Pods have other UIDs there.
func (r *proxiedCluster) selection(ctx context.Context, ref *v1alpha1.ObjectReference) (*podSelection, error) {
	kind := schema.GroupKind{Group: ref.Group, Kind: ref.Kind}
	if kind == (schema.GroupKind{Kind: "Pod"}) {
		return &podSelection{pod: ref.Name}, nil
	}
	gvr := schema.GroupVersionResource{Group: ref.Group, Version: ref.Version, Resource: ref.Resource}
	o := &unstructured.Unstructured{}
	if err := r.get(ctx, gvr, ref.Name, "", acceptJSON, o); err != nil {
		return nil, err
	}
	selector, err := selectorOf(o)
	if err != nil {
		return nil, fmt.Errorf("%s of Cluster %s: %w", placedName(ref), r.cluster, err)
	}
	s := &podSelection{selector: selector, controllers: map[types.UID]bool{o.GetUID(): true}}
	switch kind {
	case schema.GroupKind{Kind: "Service"}:
		if s.controllers = nil; selector == "" {
			return nil, fmt.Errorf("%s must have a selector, by which Pods are found", placedName(ref))
		}
	case schema.GroupKind{Group: "apps", Kind: "Deployment"}:
		s.controllers, _, err = r.ownedBy(ctx, schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "replicasets"}, selector, o.GetUID())
	case schema.GroupKind{Group: "batch", Kind: "CronJob"}:
		var jobs []string
		if s.controllers, jobs, err = r.ownedBy(ctx, batchv1.SchemeGroupVersion.WithResource("jobs"), "", o.GetUID()); err == nil {
			s.selector = fmt.Sprintf("%s in (%s)", batchv1.JobNameLabel, strings.Join(jobs, ","))
		}
	}
	return s, err
}

// selectorOf returns the selector in the spec of a workload or a Service; "" if it has none.
func selectorOf(o *unstructured.Unstructured) (string, error) {
	found, _, err := unstructured.NestedFieldNoCopy(o.Object, "spec", "selector")
	if err != nil {
		return "", fmt.Errorf("read spec.selector: %w", err)
	}
	fields, ok := found.(map[string]any)
	if !ok {
		return "", nil
	}
	_, byLabels := fields["matchLabels"]
	_, byExpressions := fields["matchExpressions"]
	if !byLabels && !byExpressions { // of a Service or a ReplicationController
		simple, _, err := unstructured.NestedStringMap(o.Object, "spec", "selector")
		if err != nil {
			return "", fmt.Errorf("read spec.selector: %w", err)
		}
		return labels.Set(simple).String(), nil
	}
	raw, err := json.Marshal(found)
	if err != nil {
		return "", fmt.Errorf("read spec.selector: %w", err)
	}
	selector := &metav1.LabelSelector{}
	if err := json.Unmarshal(raw, selector); err != nil {
		return "", fmt.Errorf("read spec.selector: %w", err)
	}
	return metav1.FormatLabelSelector(selector), nil
}

// ownedBy returns the UIDs and the names of the objects of a resource that an object controls.
func (r *proxiedCluster) ownedBy(ctx context.Context, gvr schema.GroupVersionResource, selector string, owner types.UID) (map[types.UID]bool, []string, error) {
	list := &metav1.PartialObjectMetadataList{}
	if err := r.list(ctx, gvr, selector, "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", list); err != nil {
		return nil, nil, err
	}
	owned, names := map[types.UID]bool{}, []string{}
	for i := range list.Items {
		if controller := metav1.GetControllerOf(&list.Items[i]); controller != nil && controller.UID == owner {
			owned[list.Items[i].UID] = true
			names = append(names, list.Items[i].Name)
		}
	}
	return owned, names, nil
}

// pods returns the selected Pods, those that are ready first, then those that run, each by name.
func (r *proxiedCluster) pods(ctx context.Context, s *podSelection) ([]corev1.Pod, error) {
	if s.pod != "" {
		pod := corev1.Pod{}
		err := r.get(ctx, podResource(), s.pod, "", acceptJSON, &pod)
		return []corev1.Pod{pod}, err
	}
	if s.controllers != nil && len(s.controllers) == 0 {
		return nil, nil
	}
	list := &corev1.PodList{}
	if err := r.list(ctx, podResource(), s.selector, acceptJSON, list); err != nil {
		return nil, err
	}
	found := slices.DeleteFunc(list.Items, func(pod corev1.Pod) bool {
		return !s.selects(&pod) || len(validation.IsDNS1123Subdomain(pod.Name)) > 0 // a hostile cluster could write to the terminal
	})
	slices.SortFunc(found, func(a, b corev1.Pod) int {
		return cmp.Or(cmp.Compare(podRank(&a), podRank(&b)), cmp.Compare(a.Name, b.Name))
	})
	return found, nil
}

// podRank orders Pods: the lower, the sooner a user wants it.
func podRank(pod *corev1.Pod) int {
	switch {
	case isReady(pod):
		return 0
	case pod.DeletionTimestamp == nil && pod.Status.Phase == corev1.PodRunning:
		return 1
	case pod.DeletionTimestamp == nil:
		return 2
	}
	return 3
}

// isReady tells whether a Pod is ready and stays.
func isReady(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}
