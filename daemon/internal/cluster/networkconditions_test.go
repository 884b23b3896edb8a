// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"errors"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
)

func TestConditionIsCurrent(t *testing.T) {
	t.Parallel()
	wrong := errors.New("spec.Options.cidr: wrong")
	with := func(c ...metav1.Condition) client.Object {
		return &v1.ClusterNetwork{Status: v1.NetworkStatus{Conditions: c}}
	}
	cases := map[string]struct {
		reason string
		obj    client.Object
		err    error
		want   bool
	}{
		"FineUnsaid":    {reason: "nothing to say of a valid network", obj: with(), want: true},
		"WrongUnsaid":   {reason: "a fault must be told", obj: with(), err: wrong},
		"WrongSaid":     {reason: "told already", obj: with(readyCondition(1, wrong)), err: wrong, want: true},
		"OtherFault":    {reason: "another fault now", obj: with(readyCondition(1, wrong)), err: errors.New("other")},
		"Corrected":     {reason: "the fault is gone", obj: with(readyCondition(1, wrong))},
		"SomebodyElses": {reason: "a condition of the controller stays", obj: with(metav1.Condition{Type: ConditionReady, Reason: "LinksUp"}), want: true},
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
