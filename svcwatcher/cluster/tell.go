// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/network"
	"github.com/patchbay-cni/patchbay/svcwatcher"
)

// told remembers what was last said about a Service on each subject, so that an Event
// comes when something changes and not with each look. It is lost with the process,
// and said once more.
type told struct {
	mu   sync.Mutex
	last map[client.ObjectKey]map[string]string
}

// news notes a message, "" for none, and reports whether it should be said.
func (t *told) news(key client.ObjectKey, subject, message string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.last[key][subject] == message {
		return false
	}
	if t.last == nil {
		t.last = map[client.ObjectKey]map[string]string{}
	}
	if t.last[key] == nil {
		t.last[key] = map[string]string{}
	}
	t.last[key][subject] = message
	return message != ""
}

func (t *told) forget(key client.ObjectKey) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.last, key)
}

// warn makes an Event on a Service if it says something new about the subject.
func (r *Reconciler) warn(svc *corev1.Service, subject, reason, message string) {
	if r.told.news(client.ObjectKeyFromObject(svc), subject, message) {
		r.cfg.Events.Event(svc, corev1.EventTypeWarning, reason, message)
	}
}

// tell says why a Service is not served.
func (r *Reconciler) tell(svc *corev1.Service, j svcwatcher.Judgement) {
	if j.Verdict == svcwatcher.Foreign {
		r.told.forget(client.ObjectKeyFromObject(svc)) // most Services are
		return
	}
	r.warn(svc, "", j.Reason, j.Message)
}

// tellStanding says that a network is of no use to a Service.
func (r *Reconciler) tellStanding(svc *corev1.Service, ref network.Ref, at standing) {
	reason, message := "", ""
	switch {
	case at.uid == "":
		reason, message = svcwatcher.ReasonNoNetwork, fmt.Sprintf("%s does not exist: no endpoint is on it until it does", ref)
	case !at.allowed:
		reason, message = svcwatcher.ReasonNotAllowed,
			fmt.Sprintf("%s is not for namespace %s: have the namespace added to its AllowedTenants, or name another network", ref, svc.Namespace)
	}
	r.warn(svc, ref.String(), reason, message)
}

// tellRefusal says what the API server did not take. That it was away, or that there
// is something newer, is no news.
func (r *Reconciler) tellRefusal(svc *corev1.Service, err error) {
	if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsAlreadyExists(err) {
		r.warn(svc, "write", svcwatcher.ReasonNotWritten, err.Error())
	}
}
