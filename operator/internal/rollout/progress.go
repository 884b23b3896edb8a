// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/patchbay-cni/patchbay/api/operator/v1alpha1"
	"github.com/patchbay-cni/patchbay/operator/internal/render"
)

// Progress is how far a part is.
type Progress struct {
	// Counts are for the status of the Installation.
	Counts v1alpha1.PartStatus
	// Status, Reason and Message are for the condition of the part.
	Status          metav1.ConditionStatus
	Reason, Message string
	// Recheck is when a Pod passes its deadline; 0 for never.
	Recheck time.Duration
}

// IsDone reports whether all Pods have the template and are ready.
func (p *Progress) IsDone() bool { return p.Status == metav1.ConditionTrue }

// Input is what the progress of a part is computed from.
type Input struct {
	Part *render.Part
	// Pods of the part, also those that end.
	Pods []*corev1.Pod
	// Generation of the workload after it was applied last: a status of an older one counts for nothing.
	Generation int64
	Now        time.Time
}

// OfDaemonSet returns the progress of the node daemon. The DaemonSet is nil if it does not exist.
func OfDaemonSet(in *Input, ds *appsv1.DaemonSet) Progress {
	if ds == nil {
		return in.unknown()
	}
	s := ds.Status
	// The Pods say more than the DaemonSet's controller, which counts them later.
	p := in.progress(v1alpha1.PartStatus{Updated: int32(len(in.updated())), Ready: in.count(isReady), Total: s.DesiredNumberScheduled})
	if ds.Generation < in.Generation || s.ObservedGeneration < ds.Generation {
		return *p.observing()
	}
	if failing := in.failures(); len(failing) > 0 {
		return *p.stopped("nodes", failing)
	}
	return *p.result("nodes", in.Part.OnDelete)
}

// OfDeployment returns the progress of a Deployment. It is nil if it does not exist.
func OfDeployment(in *Input, d *appsv1.Deployment) Progress {
	if d == nil {
		return in.unknown()
	}
	s, total := d.Status, int32(1)
	if d.Spec.Replicas != nil {
		total = *d.Spec.Replicas
	}
	p := in.progress(v1alpha1.PartStatus{Updated: s.UpdatedReplicas, Ready: s.ReadyReplicas, Total: total})
	if d.Generation < in.Generation || s.ObservedGeneration < d.Generation {
		return *p.observing()
	}
	failing := in.failures()
	if len(failing) == 0 {
		failing = deploymentFailures(d)
	}
	if len(failing) > 0 {
		return *p.stopped("Pods", failing)
	}
	if s.Replicas > total {
		return *p.progressing("Pods") // Pods of an earlier template are left
	}
	return *p.result("Pods", false)
}

// deploymentFailures returns why the Deployment's controller makes no progress, such as a quota.
func deploymentFailures(d *appsv1.Deployment) []failure {
	for _, c := range d.Status.Conditions {
		stopped := c.Type == appsv1.DeploymentProgressing && c.Status == corev1.ConditionFalse ||
			c.Type == appsv1.DeploymentReplicaFailure && c.Status == corev1.ConditionTrue
		if stopped {
			return []failure{{cause: c.Message}}
		}
	}
	return nil
}

// Outdated returns how many Pods run, or may run, another image than the part's.
func Outdated(in *Input) int {
	count := 0
	for _, pod := range in.Pods {
		if pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded {
			continue
		}
		for i := range pod.Spec.Containers {
			if c := &pod.Spec.Containers[i]; c.Name == in.Part.Container && c.Image != in.Part.Image {
				count++
			}
		}
	}
	return count
}

// Limit returns how many nodes may be without a ready daemon: 1 until the first node is ready with the present
// template, and while a Pod with it fails. Nodes whose kubelet neither starts nor ends a Pod count in addition, because
// Kubernetes counts them, and a machine that is off must not stop the others.
func Limit(in *Input) intstr.IntOrString {
	absent := 0
	for _, pod := range in.Pods {
		if in.isAbsent(pod) {
			absent++
		}
	}
	if len(in.failures()) > 0 || !slices.ContainsFunc(in.updated(), isReady) {
		return intstr.FromInt(1 + absent)
	}
	configured := in.Part.MaxUnavailable
	if absent == 0 {
		return configured
	}
	scaled, err := intstr.GetScaledValueFromIntOrPercent(&configured, len(in.Pods), true)
	if err != nil {
		return configured // the definition of Installations allows no such value
	}
	return intstr.FromInt(scaled + absent)
}

// isAbsent reports whether the kubelet of the Pod's node does not act on the Pod.
func (in *Input) isAbsent(pod *corev1.Pod) bool {
	if end := pod.DeletionTimestamp; end != nil { // when the grace period is over
		return in.Now.Sub(end.Time) > kubeletTimeout
	}
	return pod.Spec.NodeName != "" && pod.Status.StartTime == nil && in.Now.Sub(pod.CreationTimestamp.Time) > kubeletTimeout
}

// kubeletTimeout is how long a kubelet that works may take to notice a Pod.
const kubeletTimeout = time.Minute

// updated returns the Pods that have the present template.
func (in *Input) updated() []*corev1.Pod {
	var pods []*corev1.Pod
	for _, pod := range in.Pods {
		if pod.DeletionTimestamp == nil && pod.Annotations[render.TemplateAnnotation] == in.Part.Template {
			pods = append(pods, pod)
		}
	}
	return pods
}

func (in *Input) count(is func(*corev1.Pod) bool) int32 {
	count := int32(0)
	for _, pod := range in.Pods {
		if is(pod) {
			count++
		}
	}
	return count
}

// progress returns the counts of the Pods.
func (in *Input) progress(counts v1alpha1.PartStatus) *Progress {
	p := &Progress{Counts: counts}
	images := map[string]int32{}
	for _, pod := range in.Pods {
		for i := range pod.Spec.Containers {
			if c := &pod.Spec.Containers[i]; c.Name == in.Part.Container {
				images[c.Image]++
			}
		}
	}
	most := func(a, b string) int { return cmp.Or(cmp.Compare(images[b], images[a]), cmp.Compare(a, b)) }
	for _, image := range slices.SortedFunc(maps.Keys(images), most) {
		if len(p.Counts.Versions) < maxVersions {
			p.Counts.Versions = append(p.Counts.Versions, v1alpha1.PartVersion{Image: image, Pods: images[image]})
		}
	}
	p.Recheck = in.recheck()
	return p
}

// recheck returns when the first Pod passes its deadline, or the time in which a kubelet acts; 0 for never.
func (in *Input) recheck() time.Duration {
	next := time.Duration(0)
	at := func(left time.Duration) {
		if left > 0 && (next == 0 || left < next) {
			next = left
		}
	}
	for _, pod := range in.updated() {
		if !isReady(pod) {
			at(in.Part.Deadline - in.Now.Sub(notReadySince(pod)))
		}
	}
	for _, pod := range in.Pods {
		switch {
		case pod.DeletionTimestamp != nil:
			at(kubeletTimeout - in.Now.Sub(pod.DeletionTimestamp.Time))
		case pod.Status.StartTime == nil:
			at(kubeletTimeout - in.Now.Sub(pod.CreationTimestamp.Time))
		}
	}
	return next
}

// maxVersions bounds the list in the status.
const maxVersions = 16

// unknown is the progress of a workload that is not there.
func (in *Input) unknown() Progress {
	return Progress{Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonProgressing, Message: in.Part.Kind + " " + in.Part.Name + " is not there yet"}
}

// observing is for a status that is older than the spec.
func (p *Progress) observing() *Progress {
	p.Status, p.Reason = metav1.ConditionFalse, v1alpha1.ReasonProgressing
	p.Message = "Kubernetes has not acted on the present template yet"
	return p
}

func (p *Progress) progressing(what string) *Progress {
	p.Status, p.Reason = metav1.ConditionFalse, v1alpha1.ReasonProgressing
	p.Message = p.updatedText(what)
	return p
}

// result is for a roll-out without failures.
func (p *Progress) result(what string, onDelete bool) *Progress {
	c := p.Counts
	switch {
	case c.Updated < c.Total:
		p.progressing(what)
		if onDelete {
			p.Message += ": delete the other Pods, because the update strategy is OnDelete"
		}
	case c.Ready < c.Total:
		p.Status, p.Reason = metav1.ConditionFalse, v1alpha1.ReasonNotReady
		p.Message = fmt.Sprintf("%s, %d ready", p.updatedText(what), c.Ready)
	default:
		p.Status, p.Reason, p.Message = metav1.ConditionTrue, v1alpha1.ReasonReady, p.updatedText(what)
	}
	return p
}

func (p *Progress) updatedText(what string) string {
	return fmt.Sprintf("%d of %d %s updated", p.Counts.Updated, p.Counts.Total, what)
}

// stopped is for a roll-out, or a part, with Pods that do not become ready.
func (p *Progress) stopped(what string, failing []failure) *Progress {
	p.Status, p.Reason = metav1.ConditionFalse, v1alpha1.ReasonRolloutStopped
	if p.Counts.Updated >= p.Counts.Total {
		p.Reason = v1alpha1.ReasonNotReady
	}
	p.Message = p.updatedText(what)
	for i, f := range failing {
		if i == maxFailures {
			p.Message += fmt.Sprintf("; %d more", len(failing)-i)
			break
		}
		p.Message += "; " + f.String()
	}
	return p
}

// maxFailures bounds a message.
const maxFailures = 3
