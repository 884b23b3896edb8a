// SPDX-License-Identifier: Apache-2.0

package works

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// conditionError is why an object is not applied or removed, as reason and message of a condition.
type conditionError struct {
	reason, message string
	// forbidden is true when the agent lacks a right, or admission rejected the request.
	forbidden bool
}

// Error implements error.
func (e *conditionError) Error() string { return e.reason + ": " + e.message }

// asConditionError turns an error of the API server that a retry cannot solve into a *conditionError. It
// wraps other errors.
func asConditionError(t desiredObject, err error) error {
	if r, ok := errors.AsType[*conditionError](err); ok {
		return r
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return fmt.Errorf("apply %s: %w", t, err)
	}
	switch {
	case apierrors.IsConflict(err):
		if conflicts := conflictingFields(status); conflicts != "" {
			return &conditionError{reason: v1alpha1.ReasonConflict, message: fmt.Sprintf("%s: %s", t, conflicts)}
		}
	case apierrors.IsForbidden(err), apierrors.IsMethodNotSupported(err):
		return &conditionError{reason: v1alpha1.ReasonRefused, message: fmt.Sprintf("%s: %s", t, status.Status().Message), forbidden: apierrors.IsForbidden(err)}
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsNotFound(err), apierrors.IsRequestEntityTooLargeError(err):
		// A webhook may reject without a reason, which a condition must have.
		reason := cmp.Or(string(apierrors.ReasonForError(err)), v1alpha1.ReasonRefused)
		return &conditionError{reason: reason, message: fmt.Sprintf("%s: %s", t, status.Status().Message)}
	}
	return fmt.Errorf("apply %s: %w", t, err)
}

// conflictingFields lists the fields of a conflict with their owners; "" for another conflict.
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

// newCondition returns a condition without lastTransitionTime, which the comparison with the old condition
// sets.
func newCondition(kind string, ok bool, reason, message string) metav1.Condition {
	status := metav1.ConditionFalse
	if ok {
		status = metav1.ConditionTrue
	}
	const maxBytes = 1 << 10
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: truncateText(message, maxBytes)}
}

// manifestCondition returns the condition Applied of an object.
func manifestCondition(err error) metav1.Condition {
	if err == nil {
		return newCondition(v1alpha1.ConditionApplied, true, v1alpha1.ReasonAsExpected, "")
	}
	if r, ok := errors.AsType[*conditionError](err); ok {
		return newCondition(v1alpha1.ConditionApplied, false, r.reason, r.message)
	}
	return newCondition(v1alpha1.ConditionApplied, false, v1alpha1.ReasonProgressing, err.Error())
}

// mergeConditions returns the new conditions, with the times of old ones that have the same status.
func mergeConditions(old, now []metav1.Condition) []metav1.Condition {
	var merged []metav1.Condition
	for _, c := range now {
		if was := meta.FindStatusCondition(old, c.Type); was != nil && was.Status == c.Status {
			c.LastTransitionTime = was.LastTransitionTime
		} else if c.LastTransitionTime.IsZero() {
			c.LastTransitionTime = metav1.Now()
		}
		merged = append(merged, c)
	}
	return merged
}

// truncateText cuts a text to at most maxBytes, at the end of a character.
func truncateText(text string, maxBytes int) string {
	if len(text) <= maxBytes {
		return text
	}
	for maxBytes > 0 && !utf8.RuneStart(text[maxBytes]) {
		maxBytes--
	}
	return text[:maxBytes]
}

// maxMessageBytes is the largest size of a message that a report repeats.
const maxMessageBytes = 256

// truncateMessage cuts a message to maxMessageBytes.
func truncateMessage(message string) string {
	return truncateText(message, maxMessageBytes)
}
