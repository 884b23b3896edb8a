// SPDX-License-Identifier: Apache-2.0

package desiredstate

import (
	"errors"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/internal/policy"
	"github.com/patchbay-cni/patchbay/placement/internal/render"
)

// maxMessage bounds the message of a condition, in bytes.
const maxMessage = 1024

func newCondition(conditionType string, status bool, reason, message string) metav1.Condition {
	c := metav1.Condition{Type: conditionType, Status: metav1.ConditionFalse, Reason: reason, Message: message}
	if status {
		c.Status = metav1.ConditionTrue
	}
	if len(message) > maxMessage {
		c.Message = strings.ToValidUTF8(message[:maxMessage-3], "") + "..." // not cut within a character
	}
	return c
}

// PlacedCondition reports whether the targets are what users request.
func PlacedCondition(d Decision) metav1.Condition {
	switch {
	case d.Mistake != nil:
		return newCondition(v1alpha1.ConditionPlaced, false, d.Mistake.Reason, d.Mistake.Error())
	case d.Shortfall != "":
		return newCondition(v1alpha1.ConditionPlaced, false, d.ShortfallReason, d.Shortfall)
	case len(d.Replicas) == 0 && d.Note != "":
		return newCondition(v1alpha1.ConditionPlaced, true, v1alpha1.ReasonAsExpected, d.Note)
	case len(d.Replicas) == 0:
		return newCondition(v1alpha1.ConditionPlaced, true, v1alpha1.ReasonNoClustersRequested, "no cluster is requested")
	}
	return newCondition(v1alpha1.ConditionPlaced, true, v1alpha1.ReasonAsExpected, "by "+d.Source)
}

// RenderedCondition reports whether every Work has the present object. Mistake is what users must
// correct, nil for nothing.
func RenderedCondition(mistake error) metav1.Condition {
	rejected, ok := errors.AsType[*policy.Error](mistake)
	switch {
	case mistake == nil:
		return newCondition(v1alpha1.ConditionRendered, true, v1alpha1.ReasonAsExpected, "")
	case ok:
		return newCondition(v1alpha1.ConditionRendered, false, rejected.Reason, mistake.Error())
	case errors.Is(mistake, render.ErrTooLarge):
		return newCondition(v1alpha1.ConditionRendered, false, v1alpha1.ReasonTooLarge, mistake.Error())
	}
	return newCondition(v1alpha1.ConditionRendered, false, v1alpha1.ReasonInvalidRule, mistake.Error())
}

// NamespaceMissingCondition reports that a Work could not be written to its namespace.
func NamespaceMissingCondition(err error) metav1.Condition {
	return newCondition(v1alpha1.ConditionRendered, false, v1alpha1.ReasonNamespaceMissing, err.Error()+"; the hub makes the namespace again")
}
