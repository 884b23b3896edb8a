// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/patchbay-cni/patchbay/internal/text"
)

// failure is why a Pod does not become ready.
type failure struct{ node, pod, cause string }

// String returns the node, the Pod and the cause.
func (f failure) String() string {
	switch {
	case f.pod == "":
		return f.cause
	case f.node == "":
		return fmt.Sprintf("Pod %s: %s", f.pod, f.cause)
	}
	return fmt.Sprintf("node %s, Pod %s: %s", f.node, f.pod, f.cause)
}

// failures returns why Pods with the present template fail, sorted by node. A Pod that kubelet has not noticed is
// no failure: its machine may be off.
func (in *Input) failures() []failure {
	var all []failure
	for _, pod := range in.updated() {
		if cause := in.cause(pod); cause != "" {
			all = append(all, failure{node: pod.Spec.NodeName, pod: pod.Name, cause: cause})
		}
	}
	slices.SortFunc(all, func(a, b failure) int { return cmp.Or(cmp.Compare(a.node, b.node), cmp.Compare(a.pod, b.pod)) })
	return all
}

// cause returns why a Pod fails, or "".
func (in *Input) cause(pod *corev1.Pod) string {
	if isReady(pod) {
		return ""
	}
	if pod.Status.Phase == corev1.PodFailed {
		return shorten(cmp.Or(pod.Status.Reason, "failed") + withColon(pod.Status.Message))
	}
	for _, status := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		w := status.State.Waiting
		if w == nil || w.Reason == "" || w.Reason == "ContainerCreating" || w.Reason == "PodInitializing" {
			continue
		}
		return shorten(fmt.Sprintf("container %s: %s%s", status.Name, w.Reason, withColon(w.Message)))
	}
	if in.Now.Sub(notReadySince(pod)) < in.Part.Deadline || pod.Spec.NodeName != "" && pod.Status.StartTime == nil {
		return ""
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return shorten(c.Reason + withColon(c.Message))
		}
	}
	return fmt.Sprintf("not ready for %s", in.Part.Deadline) // a text that grew would be written each time
}

func withColon(message string) string {
	if message == "" {
		return ""
	}
	return ": " + message
}

// shorten bounds a text of kubelet or a runtime.
func shorten(message string) string {
	const maxLength = 300
	return text.Truncate(message, maxLength)
}

func isReady(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue && pod.DeletionTimestamp == nil
		}
	}
	return false
}

// notReadySince returns since when a Pod is not ready.
func notReadySince(pod *corev1.Pod) time.Time {
	since := pod.CreationTimestamp.Time
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady && c.LastTransitionTime.After(since) {
			since = c.LastTransitionTime.Time
		}
	}
	return since
}
