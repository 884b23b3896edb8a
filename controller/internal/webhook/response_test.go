// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/internal/tenant"
)

// A value of the wrong type is the user's mistake: 422 with its field, in the terms of the API and
// not of Go.
func TestWrongTypesAnswer422(t *testing.T) {
	t.Parallel()
	cases := map[string]struct{ object, field, want string }{
		"Text":     {`{"spec": {"Options": {"vlan": "5"}}}`, "spec.Options.vlan", "integer"},
		"TooLarge": {`{"spec": {"Options": {"vlan": 4294967296}}}`, "spec.Options.vlan", "integer"},
		"Fraction": {`{"spec": {"Options": {"mtu": 1500.5}}}`, "spec.Options.mtu", "integer"},
		"Number":   {`{"spec": {"NetworkID": 5}}`, "spec.NetworkID", "string"},
		"List":     {`{"spec": {"AllowedTenants": "a"}}`, "spec.AllowedTenants", "array"},
		"Object":   {`{"spec": {"Options": []}}`, "spec.Options", "object"},
		"Map":      {`{"spec": {"Options": {"routes": "10.0.0.0/8"}}}`, "spec.Options.routes", "object"},
		"MapValue": {`{"spec": {"Options": {"routes": {"10.0.0.0/8": 7}}}}`, "spec.Options.routes", "string"},
		"Embedded": {`{"spec": {"Options": {"allocation_pool_v6": {"end": 5}}}}`, "spec.Options.allocation_pool_v6.end", "string"},
		"All":      {`[]`, "", "object"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, kind := range []string{v1.KindClusterNetwork, v1.KindTenantNetwork, v1.KindDanmNet} {
				r := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
					Name: "net", Namespace: "ns", Operation: admissionv1.Create,
					Object: runtime.RawExtension{Raw: []byte(tc.object)},
					Kind:   metav1.GroupVersionKind{Group: "danm.io", Version: "v1", Kind: kind},
				}}
				_, err := decodeNetwork(r, r.Object.Raw)
				got := responseFor(err).Result
				if got.Code != http.StatusUnprocessableEntity || got.Reason != metav1.StatusReasonInvalid || got.Details == nil || len(got.Details.Causes) != 1 {
					t.Fatalf("%s %s: got %+v, want 422 with a cause", kind, tc.object, got)
				}
				if cause := got.Details.Causes[0]; tc.field != "" && cause.Field != tc.field || !strings.Contains(cause.Message, "must be of type "+tc.want) {
					t.Errorf("%s %s: got the cause %+v, want %s and %s", kind, tc.object, cause, tc.field, tc.want)
				}
				if strings.Contains(got.Message, "Go ") {
					t.Errorf("%s %s: %q contains terms of Go", kind, tc.object, got.Message)
				}
			}
		})
	}
}

// client-go retries a request by itself if the answer contains when.
func TestPendingReservationsSayWhenToRetry(t *testing.T) {
	t.Parallel()
	got := responseFor(fmt.Errorf("reserve: %w", tenant.ErrReservationsPending)).Result
	if got.Code != http.StatusTooManyRequests || got.Details == nil || got.Details.RetryAfterSeconds != pendingRetrySeconds {
		t.Errorf("got %+v, want 429 with details.retryAfterSeconds %d", got, pendingRetrySeconds)
	}
}

// kubectl prints the kind and the name of the object from the details of an answer.
func TestRejectionsNameTheObject(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason, name, object, want string
		err                        error
	}{
		"Invalid":   {reason: "Causes stay.", name: "net", object: `{}`, want: "net", err: &network.InvalidError{Faults: field.ErrorList{field.Required(field.NewPath("spec"), "")}}},
		"Server":    {reason: "Other errors have no details of their own.", name: "net", object: `{}`, want: "net", err: errNotSynced},
		"Generated": {reason: "The API server has not generated the name yet.", object: `{"metadata": {"generateName": "net-"}}`, want: "net-*", err: errNotSynced},
		"Unnamed":   {reason: "The API server rejects it later.", object: `[]`, err: errNotSynced},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := describedRejections{admission.HandlerFunc(func(context.Context, admission.Request) admission.Response { return responseFor(tc.err) })}
			r := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
				Name: tc.name, Object: runtime.RawExtension{Raw: []byte(tc.object)}, Kind: metav1.GroupVersionKind{Group: "danm.io", Version: "v1", Kind: v1.KindDanmNet},
			}}
			got := h.Handle(t.Context(), r).Result.Details
			if got.Group != "danm.io" || got.Kind != v1.KindDanmNet || got.Name != tc.want {
				t.Errorf("%s\nHandle: got details %+v, want those of danm.io DanmNet %q", tc.reason, got, tc.want)
			}
			if !errors.Is(tc.err, errNotSynced) && len(got.Causes) != 1 {
				t.Errorf("%s\nHandle: got causes %v", tc.reason, got.Causes)
			}
		})
	}
}
