// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
)

const (
	// cacheDelay is how long the cache of networks may be behind the API server on a busy machine.
	cacheDelay = 500 * time.Millisecond
	// replicaDelay is how long the cache of this replica may be behind that of another one.
	replicaDelay = 100 * time.Millisecond
	// cacheInterval is how often the cache is asked for a missing network in that time.
	cacheInterval = 20 * time.Millisecond
)

// EventRecorder makes Events; record.EventRecorder of client-go implements it.
type EventRecorder interface {
	// Event makes an Event on an object.
	Event(object runtime.Object, eventtype, reason, message string)
}

// podValidator validates our annotations on new Pods. The API server calls it for Pods with such an
// annotation only, and admits a Pod when no replica answers: the node daemon checks the same again.
type podValidator struct {
	checker network.PodChecker
	// events gets the mistakes in Pods of a controller, whose user sees no warning; nil for none.
	events EventRecorder
	// limiter limits these Events.
	limiter *eventLimiter
}

// Handle implements admission.Handler.
func (h *podValidator) Handle(ctx context.Context, r admission.Request) admission.Response {
	var pod podTemplate
	if err := decodeJSON(r.Object.Raw, &pod); err != nil {
		return responseFor(fmt.Errorf("decode Pod %s/%s: %w", r.Namespace, r.Name, err))
	}
	template := pod.model(r.Namespace, nil)
	owner := controllerOf(pod.Metadata.OwnerReferences)
	// podMutator has waited for the network, perhaps in another replica.
	check := func() (network.PodWarnings, error) { return checkTemplate(ctx, &h.checker, template, replicaDelay) }
	if owner != nil {
		// The controller's template has waited, and no user reads the warnings of its Pods.
		check = func() (network.PodWarnings, error) { return h.checker.Check(template) }
	}
	warnings, err := check()
	if err != nil {
		return responseFor(err)
	}
	if !isDryRun(r) {
		h.reportMistakes(r, owner, warnings.Mistakes)
	}
	return admission.Allowed("").WithWarnings(warnings.All()...)
}

// checkTemplate checks a Pod or a template of Pods. `kubectl apply` of one file may create a network
// just before the workload that uses it, perhaps by another replica: a missing network gets the delay to
// appear in the cache.
func checkTemplate(ctx context.Context, checker *network.PodChecker, p network.PodTemplate, delay time.Duration) (network.PodWarnings, error) {
	warnings, err := checker.Check(p)
	if err != nil || len(warnings.Missing) == 0 {
		return warnings, err
	}
	missing := warnings.Missing
	// The only error is that of an ended context. Check then warns of the missing networks.
	_ = wait.PollUntilContextTimeout(ctx, cacheInterval, delay, false, func(context.Context) (bool, error) {
		missing = slices.DeleteFunc(missing, checker.HasNetwork)
		return len(missing) == 0, nil
	})
	return checker.Check(p)
}

// reportMistakes makes an Event on the controller of a Pod. A tenant chooses the owner of its Pod, so
// the Event is only for kinds of workloads, which are in the Pod's namespace.
func (h *podValidator) reportMistakes(r admission.Request, owner *metav1.OwnerReference, mistakes []string) {
	if h.events == nil || owner == nil || len(mistakes) == 0 || !isWorkload(owner) || !h.limiter.allow(r.Namespace, time.Now()) {
		return
	}
	h.events.Event(ownerReference(r.Namespace, owner), corev1.EventTypeWarning, v1.ReasonLikelyMistake,
		fmt.Sprintf("Pod %s: %s", requestName(r), strings.Join(mistakes, "; ")))
}

// controllerOf returns the owner that is the controller, or nil.
func controllerOf(owners []metav1.OwnerReference) *metav1.OwnerReference {
	return metav1.GetControllerOfNoCopy(&metav1.ObjectMeta{OwnerReferences: owners})
}

// isWorkload reports whether an owner is of Kubernetes' workload APIs.
func isWorkload(owner *metav1.OwnerReference) bool {
	return owner.APIVersion == appsv1.SchemeGroupVersion.String() || owner.APIVersion == batchv1.SchemeGroupVersion.String()
}

// ownerReference returns a Pod's owner for an Event. The Pod itself has no UID yet.
func ownerReference(namespace string, owner *metav1.OwnerReference) *corev1.ObjectReference {
	return &corev1.ObjectReference{
		APIVersion: owner.APIVersion, Kind: owner.Kind, Namespace: namespace, Name: owner.Name, UID: owner.UID,
	}
}

// serviceValidator validates our annotations on Services.
type serviceValidator struct{}

// Handle implements admission.Handler.
func (serviceValidator) Handle(_ context.Context, r admission.Request) admission.Response {
	var s, old corev1.Service
	err := decodeJSON(r.Object.Raw, &s)
	if err == nil && r.Operation == admissionv1.Update {
		err = decodeJSON(r.OldObject.Raw, &old)
	}
	if err != nil {
		return responseFor(fmt.Errorf("decode Service %s/%s: %w", r.Namespace, r.Name, err))
	}
	selecting := len(s.Spec.Selector) > 0
	if selecting == (len(old.Spec.Selector) > 0) && maps.Equal(network.OwnAnnotations(s.Annotations), network.OwnAnnotations(old.Annotations)) {
		return admission.Allowed("") // other fields may change even if an old annotation breaks a new rule
	}
	if _, err := network.ParseService(r.Namespace, s.Annotations, selecting); err != nil {
		return responseFor(err)
	}
	return admission.Allowed("").WithWarnings(network.UnknownAnnotations(field.NewPath("metadata", "annotations"), s.Annotations, network.ServiceAnnotations())...)
}
