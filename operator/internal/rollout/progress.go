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
	// MissingSince is since when nodes have no Pod at all. It is the Input of the next pass.
	MissingSince time.Time
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
	// MissingSince is that of the Progress before.
	MissingSince time.Time
}

// OfDaemonSet returns the progress of the node daemon. The DaemonSet is nil if it does not exist.
func OfDaemonSet(in *Input, ds *appsv1.DaemonSet) Progress {
	if ds == nil {
		return in.unknown()
	}
	s := ds.Status
	p := in.progress(v1alpha1.PartStatus{
		Updated: settled(int32(len(in.updated())), s.UpdatedNumberScheduled, s.DesiredNumberScheduled),
		Ready:   settled(in.count(isReady), s.NumberReady, s.DesiredNumberScheduled),
		Total:   s.DesiredNumberScheduled,
	})
	if ds.Generation < in.Generation || s.ObservedGeneration < ds.Generation {
		return *p.observing()
	}
	failing := in.failures()
	if missing := int(s.DesiredNumberScheduled) - in.nodes(); missing > 0 {
		if p.MissingSince = in.MissingSince; p.MissingSince.IsZero() {
			p.MissingSince = in.Now
		}
		if in.isMissing() {
			failing = append(failing, failure{cause: fmt.Sprintf("Kubernetes creates no Pod on %d nodes: see the Events of DaemonSet %s", missing, in.Part.Name)})
		} else {
			p.recheckIn(in.Part.Deadline - in.Now.Sub(p.MissingSince))
		}
	} else if in.isMissing() {
		p.recheckIn(time.Second) // the limit of this pass was for nodes without Pods
	}
	switch {
	case len(failing) > 0:
		return *p.stopped("nodes", failing)
	case s.DesiredNumberScheduled == 0:
		p.Status, p.Reason = metav1.ConditionFalse, v1alpha1.ReasonNotReady
		p.Message = "the node daemon runs nowhere, because no node matches nodeSelector, affinity and tolerations of DaemonSet " + in.Part.Name
		return *p
	}
	return *p.result(in, "nodes")
}

// settled returns the number of Pods, which says earlier than the DaemonSet's controller what goes on, and the
// controller's number at the end: it does not count Pods on nodes that the DaemonSet is not for.
func settled(pods, counted, total int32) int32 {
	if pods < total {
		return pods
	}
	return min(pods, counted)
}

// nodes returns on how many nodes there are Pods, also such that end.
func (in *Input) nodes() int {
	nodes := map[string]bool{}
	for _, pod := range in.Pods {
		if isOver(pod) {
			continue
		}
		nodes[cmp.Or(pod.Spec.NodeName, pod.Name)] = true // a DaemonSet's Pod without a node is for one
	}
	return len(nodes)
}

// isMissing reports whether nodes have had no Pod for longer than the deadline.
func (in *Input) isMissing() bool {
	return !in.MissingSince.IsZero() && in.Now.Sub(in.MissingSince) >= in.Part.Deadline
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
	return *p.result(in, "Pods")
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

// Outdated returns the names of the nodes whose Pods run, or may run, another image than the part's, one for each
// Pod.
func Outdated(in *Input) []string {
	var nodes []string
	for _, pod := range in.Pods {
		if !isOver(pod) && ImageOf(in.Part, pod.Annotations, &pod.Spec) != in.Part.Image {
			nodes = append(nodes, cmp.Or(pod.Spec.NodeName, "(none)"))
		}
	}
	slices.Sort(nodes)
	return nodes
}

// ImageOf returns the image that a part has in a template or a Pod. That of the container may have been rewritten by
// an admission plugin, such as one for a mirror; the annotation is as the operator has applied it.
func ImageOf(part *render.Part, annotations map[string]string, spec *corev1.PodSpec) string {
	if image := annotations[render.ImageAnnotation]; image != "" {
		return image
	}
	for i := range spec.Containers {
		if c := &spec.Containers[i]; c.Name == part.Container {
			return c.Image
		}
	}
	return part.Image // no Pod of ours
}

// Limit returns how many nodes may be without a ready daemon: 1 until the first node has been ready with the present
// template for the part's MinReady, and while a Pod with it fails. Nodes whose kubelet does not act on a Pod count in
// addition, because Kubernetes counts them, and a machine that is off must not stop the others.
func Limit(in *Input) intstr.IntOrString {
	absent := 0
	for _, pod := range in.Pods {
		if in.isAbsent(pod) {
			absent++
		}
	}
	if in.isMissing() || len(in.failures()) > 0 || !slices.ContainsFunc(in.updated(), in.isProven) {
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

// Unsettled returns the names of the nodes whose Pods the DaemonSet's controller would replace all at once if it got
// another template now, whatever the limit: those that are not available yet, or end. A Pod that fails does not count,
// because it is replaced at once on purpose, nor does one whose kubelet does not act. If no Pod is ready, no node has
// a daemon to lose.
func Unsettled(in *Input) []string {
	if !slices.ContainsFunc(in.Pods, isReady) {
		return nil
	}
	var nodes []string
	for _, pod := range in.Pods {
		fails := pod.DeletionTimestamp == nil && (in.cause(pod) != "" || in.restart(pod) != "")
		if !isOver(pod) && !in.isAbsent(pod) && !fails && !in.isSettled(pod) {
			nodes = append(nodes, cmp.Or(pod.Spec.NodeName, pod.Name))
		}
	}
	slices.Sort(nodes)
	return slices.Compact(nodes) // a node may have one that ends beside the next
}

// isSettled reports whether a Pod is available to Kubernetes, whose clock may be behind.
func (in *Input) isSettled(pod *corev1.Pod) bool {
	const margin = 5 * time.Second
	return isReady(pod) && in.Now.Sub(changedSince(pod)) >= in.Part.MinReady+margin
}

// isProven reports whether a Pod has been ready for long enough to show that its template works.
func (in *Input) isProven(pod *corev1.Pod) bool {
	return isReady(pod) && in.Now.Sub(changedSince(pod)) >= in.Part.MinReady
}

// isAbsent reports whether the kubelet of the Pod's node does not act on the Pod.
func (in *Input) isAbsent(pod *corev1.Pod) bool {
	if isOver(pod) {
		return false // Kubernetes does not count it
	}
	if end := pod.DeletionTimestamp; end != nil { // when the grace period is over
		return in.Now.Sub(end.Time) > kubeletTimeout
	}
	if isUnreachable(pod) {
		return in.Now.Sub(changedSince(pod)) > kubeletTimeout
	}
	return pod.Spec.NodeName != "" && pod.Status.StartTime == nil && in.Now.Sub(pod.CreationTimestamp.Time) > kubeletTimeout
}

// kubeletTimeout is how long a kubelet that works may take to notice a Pod.
const kubeletTimeout = time.Minute

// updated returns the Pods that have the present template.
func (in *Input) updated() []*corev1.Pod {
	var pods []*corev1.Pod
	for _, pod := range in.Pods {
		if in.isUpdated(pod) {
			pods = append(pods, pod)
		}
	}
	return pods
}

func (in *Input) isUpdated(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && pod.Annotations[render.TemplateAnnotation] == in.Part.Template
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

// recheck returns when the first Pod passes its deadline, the time in which a kubelet acts, or that after which it
// has shown that it works; 0 for never.
func (in *Input) recheck() time.Duration {
	p := &Progress{}
	isRolling := in.isRolling()
	for _, pod := range in.updated() {
		since := in.Now.Sub(changedSince(pod))
		if !isReady(pod) {
			p.recheckIn(in.Part.Deadline - since)
			continue
		}
		p.recheckIn(in.Part.MinReady - since)
		for i := range pod.Status.ContainerStatuses {
			if end := in.lateEnd(&pod.Status.ContainerStatuses[i]); end != nil && isRolling {
				p.recheckIn(in.Part.Deadline - in.Now.Sub(end.FinishedAt.Time))
			}
		}
	}
	for _, pod := range in.Pods {
		switch {
		case pod.DeletionTimestamp != nil:
			p.recheckIn(kubeletTimeout - in.Now.Sub(pod.DeletionTimestamp.Time))
		case isUnreachable(pod):
			p.recheckIn(kubeletTimeout - in.Now.Sub(changedSince(pod)))
		case pod.Status.StartTime == nil:
			p.recheckIn(kubeletTimeout - in.Now.Sub(pod.CreationTimestamp.Time))
		}
	}
	return p.Recheck
}

// recheckIn makes the next pass due after a time, if that is not over.
func (p *Progress) recheckIn(left time.Duration) {
	if left > 0 && (p.Recheck == 0 || left < p.Recheck) {
		p.Recheck = left
	}
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

// result is for a roll-out without failures. Pods that are not ready have time until their deadline, unless their
// kubelet does not act, which is no failure of the roll-out.
func (p *Progress) result(in *Input, what string) *Progress {
	c := p.Counts
	switch {
	case c.Updated < c.Total:
		p.progressing(what)
		if in.Part.OnDelete {
			p.Message += ": delete the other Pods, because the update strategy is OnDelete"
		}
	case c.Ready < c.Total:
		silent := in.causes(func(pod *corev1.Pod) string {
			if !in.isAbsent(pod) || in.Now.Sub(changedSince(pod)) < in.Part.Deadline {
				return ""
			}
			return "the node does not answer"
		})
		if len(silent) > 0 {
			return p.stopped(what, silent)
		}
		p.progressing(what)
		p.Message += fmt.Sprintf(", %d ready", c.Ready)
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
