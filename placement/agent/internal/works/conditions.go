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

// conditionError is why a target is not as the Work says, in the words of a condition.
type conditionError struct {
	reason, message string
	// forbidden tells that the agent lacks a right, or that admission refused.
	forbidden bool
}

// Error implements error.
func (r *conditionError) Error() string { return r.reason + ": " + r.message }

// asConditionError turns what the API server refuses into a refusal; other errors pass.
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
		// A webhook may deny without a reason, which a condition must have.
		reason := cmp.Or(string(apierrors.ReasonForError(err)), v1alpha1.ReasonRefused)
		return &conditionError{reason: reason, message: fmt.Sprintf("%s: %s", t, status.Status().Message)}
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

// newCondition makes a condition; its time is set where it is compared with the old one.
func newCondition(kind string, ok bool, reason, message string) metav1.Condition {
	status := metav1.ConditionFalse
	if ok {
		status = metav1.ConditionTrue
	}
	const longest = 1 << 10
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: truncateText(message, longest)}
}

// manifestCondition says whether the object is as the Work says.
func manifestCondition(err error) metav1.Condition {
	if err == nil {
		return newCondition(v1alpha1.ConditionApplied, true, v1alpha1.ReasonAsExpected, "")
	}
	if r, ok := errors.AsType[*conditionError](err); ok {
		return newCondition(v1alpha1.ConditionApplied, false, r.reason, r.message)
	}
	return newCondition(v1alpha1.ConditionApplied, false, v1alpha1.ReasonProgressing, err.Error())
}

// appliedCondition sums up all manifests.
func appliedCondition(errs []error) metav1.Condition {
	if len(errs) == 0 {
		return manifestCondition(nil)
	}
	var messages []string
	for _, err := range errs {
		messages = append(messages, manifestCondition(err).Message)
	}
	return newCondition(v1alpha1.ConditionApplied, false, manifestCondition(errs[0]).Reason, strings.Join(messages, "; "))
}

// readyCondition sums up all manifests.
func readyCondition(manifests []v1alpha1.ManifestStatus) metav1.Condition {
	for _, m := range manifests {
		if !m.Ready {
			return newCondition(v1alpha1.ConditionReady, false, v1alpha1.ReasonProgressing, m.Kind+" "+m.Name+" is not ready")
		}
	}
	return newCondition(v1alpha1.ConditionReady, true, v1alpha1.ReasonAsExpected, "")
}

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

// truncateText shortens a text to so many bytes, and not within a character.
func truncateText(text string, longest int) string {
	if len(text) <= longest {
		return text
	}
	for longest > 0 && !utf8.RuneStart(text[longest]) {
		longest--
	}
	return text[:longest]
}

func truncateMessage(message string) string {
	return truncateText(message, maxMessageBytes)
}
