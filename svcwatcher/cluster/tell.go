// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/network"
	"github.com/patchbay-cni/patchbay/svcwatcher"
)

// Subjects of Events on a Service, besides its networks by their names.
const (
	subjectService  = ""
	subjectWrite    = "write"
	subjectWithheld = "withheld"
)

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
	subjects := []string{subjectService, subjectWrite, subjectWithheld}
	if j.Request != nil {
		for _, ref := range j.Request.Networks {
			subjects = append(subjects, ref.String())
		}
	}
	r.told.only(client.ObjectKeyFromObject(svc), subjects...)
	r.warn(svc, subjectService, j.Reason, j.Message)
}

// tellStanding says that a network is of no use to a Service.
func (r *Reconciler) tellStanding(svc *corev1.Service, ref network.Ref, at standing) {
	reason, message := "", ""
	switch {
	case !at.exists:
		reason, message = svcwatcher.ReasonNoNetwork, fmt.Sprintf("%s does not exist: no endpoint is on it until it does", ref)
	case !at.allowed:
		reason, message = svcwatcher.ReasonNotAllowed,
			fmt.Sprintf("%s is not for namespace %s: have the namespace added to its AllowedTenants, or name another network", ref, svc.Namespace)
	case at.Err != nil:
		reason, message = svcwatcher.ReasonNetworkInvalid, fmt.Sprintf("no endpoint is on it until it is mended: %v", at.Err)
	}
	r.warn(svc, ref.String(), reason, message)
}

// tellWithheld says which addresses are not published, and why.
func (r *Reconciler) tellWithheld(svc *corev1.Service, all []svcwatcher.Withheld) {
	message := ""
	if len(all) > 0 {
		message = all[0].String()
	}
	if len(all) > 1 {
		message += fmt.Sprintf(" (and %d more)", len(all)-1)
	}
	r.warn(svc, subjectWithheld, svcwatcher.ReasonWithheld, message)
}

// tellRefusal says what the API server did not take. That it was away, or that there
// is something newer, is no news.
func (r *Reconciler) tellRefusal(svc *corev1.Service, err error) {
	if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsAlreadyExists(err) {
		r.warn(svc, subjectWrite, svcwatcher.ReasonNotWritten, err.Error())
	}
}
