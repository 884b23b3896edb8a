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

// failures returns why Pods with the present template fail, sorted by node. A Pod whose kubelet does not act is no
// failure: its machine may be off.
func (in *Input) failures() []failure {
	isRolling := in.isRolling()
	return in.causes(func(pod *corev1.Pod) string {
		cause := in.cause(pod)
		if cause == "" && isRolling {
			cause = in.restart(pod)
		}
		return cause
	})
}

// causes returns what a function finds for Pods with the present template, sorted by node.
func (in *Input) causes(of func(*corev1.Pod) string) []failure {
	var all []failure
	for _, pod := range in.updated() {
		if cause := of(pod); cause != "" {
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
	if in.Now.Sub(changedSince(pod)) < in.Part.Deadline || pod.Spec.NodeName != "" && pod.Status.StartTime == nil || isUnreachable(pod) {
		return ""
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return shorten(c.Reason + withColon(c.Message))
		}
	}
	return fmt.Sprintf("not ready for %s: see the log of the Pod", in.Part.Deadline) // a text that grew would be written each time
}

// isRolling reports whether nodes have daemons of another template. Then a daemon that has crashed must not get
// onto the next ones. Kubernetes does not let Deployments wait.
func (in *Input) isRolling() bool {
	return in.Part.Kind == "DaemonSet" && slices.ContainsFunc(in.Pods, func(pod *corev1.Pod) bool { return !isOver(pod) && !in.isUpdated(pod) })
}

// restart returns which container of a Pod has ended within the deadline, although it may be ready again, or "".
// A container whose end nobody has seen has ended with its machine.
func (in *Input) restart(pod *corev1.Pod) string {
	for _, status := range pod.Status.ContainerStatuses {
		if end := in.lateEnd(&status); end != nil {
			return shorten(fmt.Sprintf("container %s has ended with exit code %d%s, and was restarted", status.Name, end.ExitCode, withColon(end.Reason)))
		}
	}
	return ""
}

// lateEnd returns how a container ended before its last restart, if that was within the deadline.
func (in *Input) lateEnd(status *corev1.ContainerStatus) *corev1.ContainerStateTerminated {
	end := status.LastTerminationState.Terminated
	if end == nil || end.Reason == "Unknown" || end.Reason == "ContainerStatusUnknown" || in.Now.Sub(end.FinishedAt.Time) >= in.Part.Deadline {
		return nil
	}
	return end
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
	return conditionOf(pod, corev1.PodReady) == corev1.ConditionTrue && pod.DeletionTimestamp == nil
}

// isOver reports whether nothing of a Pod runs any more.
func isOver(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded
}

// isUnreachable reports whether Kubernetes, and not kubelet, has said that a Pod is not ready: the node does not
// answer. Kubelet never says so of a Pod whose containers are ready and that has no gates.
func isUnreachable(pod *corev1.Pod) bool {
	return len(pod.Spec.ReadinessGates) == 0 && conditionOf(pod, corev1.PodReady) == corev1.ConditionFalse && conditionOf(pod, corev1.ContainersReady) == corev1.ConditionTrue
}

func conditionOf(pod *corev1.Pod, kind corev1.PodConditionType) corev1.ConditionStatus {
	for _, c := range pod.Status.Conditions {
		if c.Type == kind {
			return c.Status
		}
	}
	return ""
}

// changedSince returns since when a Pod is ready, or not ready.
func changedSince(pod *corev1.Pod) time.Time {
	since := pod.CreationTimestamp.Time
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady && c.LastTransitionTime.After(since) {
			since = c.LastTransitionTime.Time
		}
	}
	return since
}
