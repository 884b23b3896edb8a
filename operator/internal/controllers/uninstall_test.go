// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"errors"
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/patchbay-cni/patchbay/api/operator/v1alpha1"
	"github.com/patchbay-cni/patchbay/operator/internal/uninstall"
)

func TestUninstallStatus(t *testing.T) {
	t.Parallel()
	step := &uninstall.Step{Reason: v1alpha1.ReasonPodsAttached, Message: "shop/web"}
	last := &uninstall.Step{Action: uninstall.Finish, Reason: v1alpha1.ReasonUninstalled, Message: "removed"}
	for name, tc := range map[string]struct {
		why             string
		step            *uninstall.Step
		failed          error
		status          metav1.ConditionStatus
		reason, message string
	}{
		"Step":     {"The step is what the user waits for.", step, nil, metav1.ConditionFalse, v1alpha1.ReasonPodsAttached, "shop/web"},
		"Failed":   {"The error says why the step is not done.", step, errors.New("delete Role a: forbidden"), metav1.ConditionFalse, v1alpha1.ReasonUninstallFailed, "delete Role a: forbidden"},
		"Last":     {"It is the end.", last, nil, metav1.ConditionTrue, v1alpha1.ReasonUninstalled, "removed"},
		"Conflict": {"It is not the end while the finalizer is there.", last, errors.New("timeout"), metav1.ConditionFalse, v1alpha1.ReasonUninstallFailed, "timeout"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i := &v1alpha1.Installation{ObjectMeta: metav1.ObjectMeta{Generation: 3}}
			s := uninstallStatus(i, tc.step, tc.failed, metav1.Now())
			for kind, want := range map[string]string{v1alpha1.ConditionUninstalled: tc.message, v1alpha1.ConditionReady: "Uninstalling: " + tc.message} {
				c, status := meta.FindStatusCondition(s.Conditions, kind), tc.status
				if kind == v1alpha1.ConditionReady {
					status = metav1.ConditionFalse
				}
				if c == nil || c.Status != status || c.Reason != tc.reason || c.Message != want || c.ObservedGeneration != 3 {
					t.Errorf("%s: %s: got %+v, want %s: %s", tc.why, kind, c, tc.reason, want)
				}
			}
		})
	}
}

// The Installation stays until its status has the last step: a command that waits for its end could not tell what it was.
func TestIsReported(t *testing.T) {
	t.Parallel()
	step := &uninstall.Step{Action: uninstall.Finish, Reason: v1alpha1.ReasonAnotherInstallation}
	for name, tc := range map[string]struct {
		why     string
		reasons []string
		want    bool
	}{
		"Nothing":  {"The uninstallation has one step.", nil, false},
		"Earlier":  {"The step before is not the outcome.", []string{v1alpha1.ReasonRemovingPrograms}, false},
		"Another":  {"The outcome has changed.", []string{v1alpha1.ReasonUninstalled}, false},
		"Reported": {"It can be read.", []string{v1alpha1.ReasonAnotherInstallation}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i := &v1alpha1.Installation{}
			for _, reason := range tc.reasons {
				i.Status.Conditions = append(i.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionUninstalled, Reason: reason})
			}
			if got := isReported(i, step); got != tc.want {
				t.Errorf("%s: got %v, want %v", tc.why, got, tc.want)
			}
		})
	}
}

// A slow pass must not stop the uninstallation for minutes: not all of what it waits for is watched.
func TestWaitAfter(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		why        string
		pass, want time.Duration
	}{
		"Small": {"The API server has little to do.", 10 * time.Millisecond, waitInterval},
		"Large": {"A pass must not follow on the other.", 2 * time.Second, 20 * time.Second},
		"Slow":  {"The user has deleted the Pods meanwhile.", time.Minute, longestWait},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := waitAfter(tc.pass); got != tc.want {
				t.Errorf("%s Got %s, want %s", tc.why, got, tc.want)
			}
		})
	}
}

// The annotations that force an uninstallation count at once, and the operator's own writes of the status do not.
func TestChanges(t *testing.T) {
	t.Parallel()
	before := &v1alpha1.Installation{ObjectMeta: metav1.ObjectMeta{Generation: 1}}
	for name, tc := range map[string]struct {
		why    string
		change func(*v1alpha1.Installation)
		want   bool
	}{
		"Spec": {"It is to be applied.", func(i *v1alpha1.Installation) { i.Generation++ }, true},
		"Annotation": {"The uninstallation is forced.", func(i *v1alpha1.Installation) {
			i.Annotations = map[string]string{v1alpha1.ForceUninstallAnnotation: "true"}
		}, true},
		"Status": {"The operator has written it.", func(i *v1alpha1.Installation) { i.ResourceVersion, i.Status.Version = "2", "v1" }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			after := before.DeepCopy()
			tc.change(after)
			if got := changes().Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after}); got != tc.want {
				t.Errorf("%s Got %t", tc.why, got)
			}
		})
	}
}

// The API server acts on policies for some seconds after their deletion: the removal of finalizers is denied, and nothing
// has failed. A policy of the cluster's own denies it for longer.
func TestIsDeniedYet(t *testing.T) {
	t.Parallel()
	denied := apierrors.NewForbidden(schema.GroupResource{Resource: "danmeps"}, "web", errors.New("ValidatingAdmissionPolicy 'patchbay-node-danmeps' denied request"))
	finalizers := uninstall.Step{Action: uninstall.RemoveFinalizers}
	for name, tc := range map[string]struct {
		why   string
		step  uninstall.Step
		err   error
		since time.Duration
		want  bool
	}{
		"First":    {"The policies are just deleted.", finalizers, fmt.Errorf("remove the finalizer: %w", denied), 0, true},
		"Seconds":  {"The API server still has them.", finalizers, denied, deniedTime / 2, true},
		"Invalid":  {"A policy may deny with this reason.", finalizers, apierrors.NewInvalid(schema.GroupKind{Kind: "DanmEp"}, "web", nil), 0, true},
		"Long":     {"A user has to know.", finalizers, denied, deniedTime, false},
		"Other":    {"The operator has not the right.", uninstall.Step{Action: uninstall.Delete}, denied, 0, false},
		"Timeout":  {"The API server has not answered.", finalizers, errors.New("timeout"), 0, false},
		"No error": {"The finalizers are removed.", finalizers, nil, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			now := time.Now()
			r := &Reconciler{Now: func() time.Time { return now }}
			if tc.since > 0 {
				r.deniedSince = now.Add(-tc.since)
			}
			if got := r.isDeniedYet(&tc.step, tc.err); got != tc.want {
				t.Errorf("%s Got %t", tc.why, got)
			}
			if !tc.want && tc.since == 0 && !r.deniedSince.IsZero() {
				t.Error("A later denial would count from now on")
			}
		})
	}
}
