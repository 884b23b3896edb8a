// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/patchbay-cni/patchbay/api/operator/v1alpha1"
	"github.com/patchbay-cni/patchbay/operator/internal/uninstall"
)

func TestUninstallStatus(t *testing.T) {
	t.Parallel()
	step := &uninstall.Step{Reason: v1alpha1.ReasonPodsAttached, Message: "shop/web"}
	for name, tc := range map[string]struct {
		why             string
		failed          error
		reason, message string
	}{
		"Step":   {"The step is what the user waits for.", nil, v1alpha1.ReasonPodsAttached, "shop/web"},
		"Failed": {"The error says why the step is not done.", errors.New("delete Role a: forbidden"), v1alpha1.ReasonUninstallFailed, "delete Role a: forbidden"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i := &v1alpha1.Installation{ObjectMeta: metav1.ObjectMeta{Generation: 3}}
			s := uninstallStatus(i, step, tc.failed, metav1.Now())
			for kind, want := range map[string]string{v1alpha1.ConditionUninstalled: tc.message, v1alpha1.ConditionReady: "Uninstalling: " + tc.message} {
				c := meta.FindStatusCondition(s.Conditions, kind)
				if c == nil || c.Status != metav1.ConditionFalse || c.Reason != tc.reason || c.Message != want || c.ObservedGeneration != 3 {
					t.Errorf("%s: %s: got %+v, want %s: %s", tc.why, kind, c, tc.reason, want)
				}
			}
		})
	}
}
