// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// refusal is why a target is not as the Work says, in the words of a condition.
type refusal struct {
	reason, message string
	// forbidden tells that the agent lacks a right, or that admission refused.
	forbidden bool
}

// Error implements error.
func (r *refusal) Error() string { return r.reason + ": " + r.message }

// refused turns what the API server refuses into a refusal; other errors pass.
func refused(t target, err error) error {
	if r, ok := errors.AsType[*refusal](err); ok {
		return r
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return fmt.Errorf("apply %s: %w", t, err)
	}
	switch {
	case apierrors.IsConflict(err):
		if conflicts := conflictingFields(status); conflicts != "" {
			return &refusal{reason: v1alpha1.ReasonConflict, message: fmt.Sprintf("%s: %s", t, conflicts)}
		}
	case apierrors.IsForbidden(err), apierrors.IsMethodNotSupported(err):
		return &refusal{reason: v1alpha1.ReasonRefused, message: fmt.Sprintf("%s: %s", t, status.Status().Message), forbidden: apierrors.IsForbidden(err)}
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsNotFound(err), apierrors.IsRequestEntityTooLargeError(err):
		// A webhook may deny without a reason, which a condition must have.
		reason := cmp.Or(string(apierrors.ReasonForError(err)), v1alpha1.ReasonRefused)
		return &refusal{reason: reason, message: fmt.Sprintf("%s: %s", t, status.Status().Message)}
	}
	return fmt.Errorf("apply %s: %w", t, err)
}

// conflictingFields names the fields and their owners.
func conflictingFields(status apierrors.APIStatus) string {
	details := status.Status().Details
	if details == nil {
		return ""
	}
	var parts []string
	for _, cause := range details.Causes {
		if cause.Type == metav1.CauseTypeFieldManagerConflict {
			parts = append(parts, fmt.Sprintf("field %s: %s", strings.TrimPrefix(cause.Field, "."), cause.Message))
		}
	}
	return strings.Join(parts, "; ")
}
