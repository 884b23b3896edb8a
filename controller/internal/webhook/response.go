// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/patchbay-cni/patchbay/controller/internal/reserve"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/internal/tenant"
)

// responseFor allows when err is nil. An invalid object is answered as the API server answers for a
// CEL rule, with a cause for each field. Any other error is the server's, and the client may try
// again.
func responseFor(err error) admission.Response {
	invalid, ok := errors.AsType[*network.InvalidError](err)
	switch {
	case err == nil:
		return admission.Allowed("")
	case ok:
		r := denied(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, err)
		r.Result.Details = &metav1.StatusDetails{}
		for _, f := range invalid.Faults {
			r.Result.Details.Causes = append(r.Result.Details.Causes, metav1.StatusCause{
				Type: metav1.CauseType(f.Type), Message: f.ErrorBody(), Field: f.Field,
			})
		}
		return r
	case errors.Is(err, network.ErrInvalid), isNetworkConflict(err):
		return denied(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, err)
	case apierrors.IsAlreadyExists(err):
		return denied(http.StatusConflict, metav1.StatusReasonAlreadyExists, err)
	case errors.Is(err, tenant.ErrReservationsPending):
		r := denied(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, err)
		r.Result.Details = &metav1.StatusDetails{RetryAfterSeconds: pendingRetrySeconds}
		return r
	case errors.Is(err, reserve.ErrUnavailable):
		return denied(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, err)
	}
	return denied(http.StatusInternalServerError, metav1.StatusReasonInternalError, err)
}

// describedRejections adds the object's kind and name to the rejections of a handler, as the API server
// does to its own. kubectl prints them in place of "The request is invalid".
type describedRejections struct{ admission.Handler }

// Handle implements admission.Handler.
func (h describedRejections) Handle(ctx context.Context, r admission.Request) admission.Response {
	response := h.Handler.Handle(ctx, r)
	if response.Allowed || response.Result == nil {
		return response
	}
	if response.Result.Details == nil {
		response.Result.Details = &metav1.StatusDetails{}
	}
	details := response.Result.Details
	details.Group, details.Kind, details.Name = r.Kind.Group, r.Kind.Kind, requestName(r)
	return response
}

// requestName returns the object's name; for a name that is to be generated, the prefix and "*".
func requestName(r admission.Request) string {
	if r.Name != "" {
		return r.Name
	}
	var obj metav1.PartialObjectMetadata
	if json.Unmarshal(r.Object.Raw, &obj) != nil || obj.GenerateName == "" {
		return ""
	}
	return truncateGenerateName(obj.GenerateName) + "*"
}

// isNetworkConflict reports whether an older network conflicts.
func isNetworkConflict(err error) bool {
	return errors.Is(err, network.ErrLinkTaken) || errors.Is(err, network.ErrParentShared) || errors.Is(err, network.ErrPoolOverlap)
}

func denied(code int32, reason metav1.StatusReason, err error) admission.Response {
	r := admission.Response{}
	r.Allowed = false
	r.Result = &metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: reason, Message: err.Error()}
	return r
}

// withSubject adds the object's name to an error without one.
func withSubject(ref network.Ref, err error) error {
	if invalid, ok := errors.AsType[*network.InvalidError](err); ok && invalid.Subject == "" {
		return &network.InvalidError{Subject: ref.String(), Faults: invalid.Faults, Err: invalid.Err}
	}
	return err
}

// decodeJSON decodes a part of a request. The API server checks types only after it has called the
// mutating webhook, so a value of the wrong type is the user's mistake. It is reported with its
// field, as the API server would.
func decodeJSON(raw []byte, into any) error {
	err := json.Unmarshal(raw, into)
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return &network.InvalidError{Faults: field.ErrorList{
			field.TypeInvalid(fieldPath(wrong.Field), wrong.Value, "must be of type "+openAPIType(wrong.Type)),
		}}
	}
	if err != nil {
		return &network.InvalidError{Faults: field.ErrorList{field.Invalid(nil, "", err.Error())}}
	}
	return nil
}

// fieldPath converts a path of encoding/json, which contains the name of the struct that IPPoolV6
// embeds; nil for the object itself.
func fieldPath(dotted string) *field.Path {
	if dotted == "" {
		return nil
	}
	return field.NewPath(strings.Replace(dotted, ".IPPool.", ".", 1))
}

// openAPIType returns the OpenAPI name of a Go type.
func openAPIType(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Bool:
		return "boolean"
	case reflect.String:
		return "string"
	case reflect.Slice, reflect.Array:
		return "array"
	case reflect.Struct, reflect.Map, reflect.Pointer:
		return "object"
	case reflect.Float32, reflect.Float64:
		return "number"
	}
	return fmt.Sprintf("integer (%s)", t.Kind())
}
