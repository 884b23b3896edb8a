// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"errors"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/patchbay-cni/patchbay/network"
	"github.com/patchbay-cni/patchbay/tenant/reserve"
)

// answer lets in when err is nil. What is wrong with the object is Invalid, as the
// API server says for a CEL rule, with a cause for each field; all else is ours, and
// the client may try again.
func answer(err error) admission.Response {
	invalid, ok := errors.AsType[*network.InvalidError](err)
	switch {
	case err == nil:
		return admission.Allowed("")
	case ok:
		r := refusal(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, err)
		r.Result.Details = &metav1.StatusDetails{}
		for _, f := range invalid.Faults {
			r.Result.Details.Causes = append(r.Result.Details.Causes, metav1.StatusCause{
				Type: metav1.CauseType(f.Type), Message: f.ErrorBody(), Field: f.Field,
			})
		}
		return r
	case errors.Is(err, network.ErrInvalid), isConflict(err):
		return refusal(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, err)
	case errors.Is(err, reserve.ErrUnavailable):
		return refusal(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, err)
	}
	return refusal(http.StatusInternalServerError, metav1.StatusReasonInternalError, err)
}

// isConflict reports whether an older network is in the way.
func isConflict(err error) bool {
	return errors.Is(err, network.ErrLinkTaken) || errors.Is(err, network.ErrParentShared) || errors.Is(err, network.ErrPoolOverlap)
}

func refusal(code int32, reason metav1.StatusReason, err error) admission.Response {
	r := admission.Response{}
	r.Allowed = false
	r.Result = &metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: reason, Message: err.Error()}
	return r
}

// about says which object an error is about, if it does not say so itself.
func about(ref network.Ref, err error) error {
	if invalid, ok := errors.AsType[*network.InvalidError](err); ok && invalid.Subject == "" {
		return &network.InvalidError{Subject: ref.String(), Faults: invalid.Faults, Err: invalid.Err}
	}
	return err
}
