// SPDX-License-Identifier: Apache-2.0

package networkcache

import (
	"errors"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
)

// A condition must be written if it differs from the network's validation error.
func TestConditionIsCurrent(t *testing.T) {
	t.Parallel()
	invalid := errors.New("spec.Options.cidr: must be a subnet")
	with := func(c ...metav1.Condition) client.Object {
		return &v1.ClusterNetwork{Status: v1.NetworkStatus{Conditions: c}}
	}
	cases := map[string]struct {
		reason string
		obj    client.Object
		err    error
		want   bool
	}{
		"Valid":           {reason: "A valid network needs no condition.", obj: with(), want: true},
		"Invalid":         {reason: "The error must be written.", obj: with(), err: invalid},
		"Written":         {reason: "The condition has the error already.", obj: with(readyCondition(1, invalid)), err: invalid, want: true},
		"OtherError":      {reason: "The network has another error now.", obj: with(readyCondition(1, invalid)), err: errors.New("other")},
		"Corrected":       {reason: "The network is valid again.", obj: with(readyCondition(1, invalid))},
		"OfTheController": {reason: "The condition of the controller must stay.", obj: with(metav1.Condition{Type: v1.ConditionReady, Reason: "LinksUp"}), want: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := conditionIsCurrent(tc.obj, tc.err); got != tc.want {
				t.Errorf("%s: got %t", tc.reason, got)
			}
		})
	}
}
