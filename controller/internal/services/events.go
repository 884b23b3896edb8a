// SPDX-License-Identifier: Apache-2.0

package services

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/svcwatcher"
)

// Subjects of Events on a Service. Each of its networks is a subject too, by network.Ref.String.
const (
	subjectService  = ""
	subjectWrite    = "write"
	subjectWithheld = "withheld"
)

// eventReporter makes warning Events on Services. It remembers the last message on each subject of
// a Service, and makes an Event only of another one. A restart loses that memory, and repeats
// the Events once. It is safe for concurrent use.
type eventReporter struct {
	events EventRecorder

	mu   sync.Mutex
	last map[client.ObjectKey]map[string]string
}

// reportClassification reports why a Service gets no endpoints.
func (e *eventReporter) reportClassification(svc *corev1.Service, j svcwatcher.Classification) {
	if j.Class == svcwatcher.Unmanaged {
		e.forget(client.ObjectKeyFromObject(svc)) // most Services are unmanaged
		return
	}
	subjects := []string{subjectService, subjectWrite, subjectWithheld}
	if j.Request != nil {
		for _, ref := range j.Request.Networks {
			subjects = append(subjects, ref.String())
		}
	}
	e.retainSubjects(client.ObjectKeyFromObject(svc), subjects...)
	e.warn(svc, subjectService, j.Reason, j.Message)
}

// reportNetworkState reports that a Service cannot use one of its networks.
func (e *eventReporter) reportNetworkState(svc *corev1.Service, ref network.Ref, at networkState) {
	reason, message := "", ""
	switch {
	case !at.exists && at.otherKind != (network.Ref{}):
		reason, message = v1.ReasonNetworkNotFound, fmt.Sprintf("%s does not exist, but %s exists: use the annotation danm.io/%s",
			ref, at.otherKind, network.ReferenceKey(at.otherKind.Kind))
	case !at.exists:
		reason, message = v1.ReasonNetworkNotFound, fmt.Sprintf("%s does not exist: the Service has no endpoints on it until it is created", ref)
	case !at.allowed:
		reason, message = v1.ReasonNetworkNotAllowed,
			fmt.Sprintf("%s must list namespace %s in spec.AllowedTenants: ask its administrator, or name another network", ref, svc.Namespace)
	case at.Err != nil:
		reason, message = v1.ReasonInvalidNetwork, fmt.Sprintf("the Service has no endpoints on an invalid network: %v", at.Err)
	}
	e.warn(svc, ref.String(), reason, message)
}

// reportWithheld reports which addresses are not published, and why.
func (e *eventReporter) reportWithheld(svc *corev1.Service, all []svcwatcher.Withheld) {
	message := ""
	if len(all) > 0 {
		message = all[0].String()
	}
	if len(all) > 1 {
		message += fmt.Sprintf(" (and %d more)", len(all)-1)
	}
	e.warn(svc, subjectWithheld, v1.ReasonAddressWithheld, message)
}

// reportRejectedWrite reports a write that the API server rejected for its content. It reports
// neither an API server that was unreachable nor a conflict, which are retried.
func (e *eventReporter) reportRejectedWrite(svc *corev1.Service, err error) {
	if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsAlreadyExists(err) {
		e.warn(svc, subjectWrite, v1.ReasonEndpointsNotWritten, err.Error())
	}
}

// warn makes a warning Event on a Service, unless it repeats the last message on the subject. An
// empty message ends the subject.
func (e *eventReporter) warn(svc *corev1.Service, subject, reason, message string) {
	if e.isNew(client.ObjectKeyFromObject(svc), subject, message) {
		e.events.Event(svc, corev1.EventTypeWarning, reason, message)
	}
}

// isNew records the last message on a subject, "" for none, and reports whether an Event is due.
func (e *eventReporter) isNew(key client.ObjectKey, subject, message string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.last[key][subject] == message {
		return false
	}
	if message == "" {
		delete(e.last[key], subject)
		return false
	}
	if e.last == nil {
		e.last = map[client.ObjectKey]map[string]string{}
	}
	if e.last[key] == nil {
		e.last[key] = map[string]string{}
	}
	e.last[key][subject] = message
	return true
}

// retainSubjects forgets all subjects of a Service except these.
func (e *eventReporter) retainSubjects(key client.ObjectKey, subjects ...string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	maps.DeleteFunc(e.last[key], func(s, _ string) bool { return !slices.Contains(subjects, s) })
}

func (e *eventReporter) forget(key client.ObjectKey) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.last, key)
}
