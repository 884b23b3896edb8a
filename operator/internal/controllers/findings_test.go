// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/patchbay-cni/patchbay/api/operator/v1alpha1"
	"github.com/patchbay-cni/patchbay/internal/version"
	"github.com/patchbay-cni/patchbay/operator/internal/render"
	"github.com/patchbay-cni/patchbay/operator/internal/rollout"
)

var now = metav1.NewTime(time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC))

func progress(reason string) rollout.Progress {
	status := metav1.ConditionFalse
	if reason == v1alpha1.ReasonReady {
		status = metav1.ConditionTrue
	}
	return rollout.Progress{Status: status, Reason: reason, Message: "1 of 2"}
}

// statusOf returns the status after a pass over an Installation of generation 3 that was ready before.
func statusOf(f *findings) *v1alpha1.InstallationStatus {
	i := &v1alpha1.Installation{ObjectMeta: metav1.ObjectMeta{Generation: 3}}
	i.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonReady, ObservedGeneration: 2}}
	return f.status(i, now)
}

// want is a condition that a test expects.
type want struct{ condition, reason, message string }

func requireCondition(t *testing.T, reason string, s *v1alpha1.InstallationStatus, w want) {
	t.Helper()
	got := meta.FindStatusCondition(s.Conditions, w.condition)
	if got == nil || got.Reason != w.reason || !strings.Contains(got.Message, w.message) || got.ObservedGeneration != 3 {
		t.Errorf("%s: got %+v, want %+v of generation 3", reason, got, w)
	}
}

func TestValidCondition(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason  string
		invalid error
		want    []want
	}{
		"Valid": {"the spec can work", nil, []want{{v1alpha1.ConditionValid, v1alpha1.ReasonValid, ""}}},
		"Invalid": {"all mistakes are in one line", errors.Join(errors.New("a"), errors.New("b")), []want{
			{v1alpha1.ConditionValid, v1alpha1.ReasonInvalid, "a; b"}, {v1alpha1.ConditionApplied, v1alpha1.ReasonInvalid, "Nothing is changed"},
			{v1alpha1.ConditionReady, v1alpha1.ReasonInvalid, "Valid: a; b"}, {v1alpha1.ConditionNode, v1alpha1.ReasonInvalid, "not computed"},
		}},
		"Version": {"another operator shall do it", fmt.Errorf("render: %w", &render.VersionError{Want: "v9"}), []want{
			{v1alpha1.ConditionValid, v1alpha1.ReasonVersionMismatch, "got v9"}, {v1alpha1.ConditionReady, v1alpha1.ReasonVersionMismatch, "spec.version"},
		}},
		"Rollback": {"a newer version is installed", &rollbackError{installed: "v9", own: "v8"}, []want{
			{v1alpha1.ConditionValid, v1alpha1.ReasonVersionMismatch, "must be v8"}, {v1alpha1.ConditionApplied, v1alpha1.ReasonVersionMismatch, "Nothing is changed"},
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := statusOf(&findings{invalid: tc.invalid})
			for _, w := range tc.want {
				requireCondition(t, tc.reason, s, w)
			}
		})
	}
}

// An operator that changes nothing leaves the version of the one that has installed Patchbay, so that an earlier one
// still knows it.
func TestVersionOfTheStatus(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason  string
		invalid error
		want    string
	}{
		"Installed": {"this version is installed", nil, version.String()},
		"Invalid":   {"this version will be installed", errors.New("a"), version.String()},
		"Version":   {"another operator shall install it", &render.VersionError{Want: "v9"}, "v7"},
		"Rollback":  {"a newer operator has installed it", &rollbackError{installed: "v7", own: "v6"}, "v7"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i := &v1alpha1.Installation{Status: v1alpha1.InstallationStatus{Version: "v7"}}
			if got := (&findings{invalid: tc.invalid}).status(i, now).Version; got != tc.want {
				t.Errorf("%s: got %s, want %s", tc.reason, got, tc.want)
			}
		})
	}
}

func TestCheckVersion(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason, installed, chosen, own string
		rejected                       bool
	}{
		"New":         {"nothing is installed yet", "", "", "v0.2.0", false},
		"Same":        {"the operator has started again", "v0.2.0", "", "v0.2.0", false},
		"Upgrade":     {"the operator is newer", "v0.9.0", "", "v0.10.0", false},
		"Rollback":    {"the operator is older", "v0.10.0", "", "v0.9.0", true},
		"Candidate":   {"a candidate is older than its release", "v0.2.0", "", "v0.2.0-rc.1", true},
		"Chosen":      {"the user wants to go back", "v0.10.0", "v0.9.0", "v0.9.0", false},
		"Development": {"builds without a version have no order", "v0.2.0", "", "devel", false},
		"AfterTag":    {"twelve commits are newer than their tag", "v0.1.0", "", "v0.1.0-12-g1a2b3c4", false},
		"MoreCommits": {"the number of commits is not a text", "v0.1.0-9-gfedcba9", "", "v0.1.0-12-g1a2b3c4", false},
		"LessCommits": {"another branch may have fewer commits since the tag", "v0.1.0-12-g1a2b3c4", "", "v0.1.0-9-gfedcba9", false},
		"Dirty":       {"changes come after the tag, too", "v0.1.0", "", "v0.1.0-dirty", false},
		"DirtyAfter":  {"changes come after the commits", "v0.1.0-12-g1a2b3c4", "", "v0.1.0-12-g1a2b3c4-dirty", false},
		"EarlierTag":  {"a build after an earlier tag is older", "v0.2.0", "", "v0.1.0-12-g1a2b3c4", true},
		"LaterTag":    {"the build after an earlier tag is installed", "v0.1.0-12-g1a2b3c4", "", "v0.2.0", false},
		"AfterRC":     {"commits after a candidate come before the release", "v0.2.0", "", "v0.2.0-rc.1-3-g1a2b3c4", true},
		"RCAfter":     {"a later candidate is newer than commits after an earlier one", "v0.2.0-rc.2", "", "v0.2.0-rc.1-3-g1a2b3c4", true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i := &v1alpha1.Installation{Spec: v1alpha1.InstallationSpec{Version: tc.chosen}, Status: v1alpha1.InstallationStatus{Version: tc.installed}}
			if err := checkVersion(i, tc.own); (err != nil) != tc.rejected {
				t.Errorf("%s: got %v, want rejected %v", tc.reason, err, tc.rejected)
			}
		})
	}
}

func TestAppliedCondition(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason   string
		findings findings
		want     []want
	}{
		"Failed": {"the message names the object", findings{applyErr: errors.New("apply DaemonSet a/b: denied")}, []want{
			{v1alpha1.ConditionApplied, v1alpha1.ReasonApplyFailed, "DaemonSet a/b"}, {v1alpha1.ConditionReady, v1alpha1.ReasonApplyFailed, "Applied: "},
			{v1alpha1.ConditionNode, v1alpha1.ReasonApplyFailed, "not computed"},
		}},
		"Another": {"two installations share the node's files", findings{applyErr: fmt.Errorf("%w: x", errAnother)}, []want{
			{v1alpha1.ConditionApplied, v1alpha1.ReasonAnotherInstallation, "x"},
		}},
		"Ending": {"no daemon starts, and the Pods say why", findings{applyErr: ending(&appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "patchbayd"}}, []*corev1.Pod{
			{ObjectMeta: metav1.ObjectMeta{Name: "b"}, Spec: corev1.PodSpec{NodeName: "n2"}}, {ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: corev1.PodSpec{NodeName: "n1"}},
		})}, []want{
			{v1alpha1.ConditionApplied, v1alpha1.ReasonRemovingNode, "a on node n1, b on node n2. If a node is off"},
		}},
		"Waiting": {"what the controller waits for says more", findings{outdated: []string{"a", "b", "c", "d"}, node: progress(v1alpha1.ReasonRolloutStopped), controller: progress(v1alpha1.ReasonReady)}, []want{
			{v1alpha1.ConditionApplied, v1alpha1.ReasonWaitingForNode, "replaced on the nodes a, b, c, d"}, {v1alpha1.ConditionController, v1alpha1.ReasonWaitingForNode, "4 Pods"},
			{v1alpha1.ConditionReady, v1alpha1.ReasonRolloutStopped, "Node: 1 of 2"},
		}},
		"Terminating": {"networks are lost, which says more than a roll-out", findings{terminating: []string{"definition a", "definition b"}, outdated: []string{"a"}, node: progress(v1alpha1.ReasonReady), controller: progress(v1alpha1.ReasonReady)}, []want{
			{v1alpha1.ConditionApplied, v1alpha1.ReasonTerminating, "definition a; definition b"}, {v1alpha1.ConditionReady, v1alpha1.ReasonTerminating, "Applied: definition a"},
			{v1alpha1.ConditionNode, v1alpha1.ReasonReady, ""},
		}},
		"TerminatingFailed": {"what failed may end the deletion", findings{terminating: []string{"definition a"}, applyErr: errors.New("denied")}, []want{
			{v1alpha1.ConditionApplied, v1alpha1.ReasonApplyFailed, "denied"},
		}},
		"Unsettled": {"the nodes say what it waits for", findings{unsettled: []string{"a", "b"}, outdated: []string{"a"}, node: progress(v1alpha1.ReasonReady), controller: progress(v1alpha1.ReasonReady)}, []want{
			{v1alpha1.ConditionApplied, v1alpha1.ReasonProgressing, "2 nodes: a, b."}, {v1alpha1.ConditionReady, v1alpha1.ReasonProgressing, "Applied: "},
		}},
		"Applied": {"all parts are ready", findings{node: progress(v1alpha1.ReasonReady), controller: progress(v1alpha1.ReasonReady)}, []want{
			{v1alpha1.ConditionApplied, v1alpha1.ReasonApplied, ""}, {v1alpha1.ConditionReady, v1alpha1.ReasonReady, "All parts are ready"},
		}},
		"PartNotReady": {"the first part that is not ready", findings{node: progress(v1alpha1.ReasonReady), controller: progress(v1alpha1.ReasonNotReady)}, []want{
			{v1alpha1.ConditionReady, v1alpha1.ReasonNotReady, "Controller: 1 of 2"},
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := statusOf(&tc.findings)
			for _, w := range tc.want {
				requireCondition(t, tc.reason, s, w)
			}
			if meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionPlacementAgent) != nil {
				t.Errorf("%s: there is a condition of an agent that is not enabled", tc.reason)
			}
		})
	}
}

// A status that says the same must not be written again.
func TestSameStatus(t *testing.T) {
	t.Parallel()
	f := &findings{node: progress(v1alpha1.ReasonProgressing), controller: progress(v1alpha1.ReasonReady)}
	i := &v1alpha1.Installation{ObjectMeta: metav1.ObjectMeta{Generation: 3}}
	i.Status = *f.status(i, now)
	if len(changedConditions(nil, i.Status.Conditions)) != 5 {
		t.Errorf("got %+v, want five conditions to be new", i.Status.Conditions)
	}
	again := f.status(i, metav1.NewTime(now.Add(time.Minute)))
	if changed := changedConditions(i.Status.Conditions, again.Conditions); len(changed) > 0 || !again.Conditions[0].LastTransitionTime.Equal(&now) {
		t.Errorf("got changes %+v, want none", changed)
	}
}

func TestRecheck(t *testing.T) {
	t.Parallel()
	f := &findings{node: rollout.Progress{Recheck: time.Minute}, agent: rollout.Progress{Recheck: time.Hour}}
	if got := f.recheck(); got != time.Minute+time.Second {
		t.Errorf("got %s, want the first deadline", got)
	}
	if got := (&findings{}).recheck(); got != checkInterval {
		t.Errorf("got %s, want %s", got, checkInterval)
	}
}
