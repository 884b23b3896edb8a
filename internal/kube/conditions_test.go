// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// statusRecorder records what is applied.
type statusRecorder struct {
	client.SubResourceWriter

	applied string
	err     error
}

func (r *statusRecorder) Status() client.SubResourceWriter { return r }

func (r *statusRecorder) Apply(_ context.Context, obj runtime.ApplyConfiguration, _ ...client.SubResourceApplyOption) error {
	text, err := json.Marshal(obj)
	r.applied = string(text)
	return errors.Join(err, r.err)
}

func TestApplyConditions(t *testing.T) {
	t.Parallel()
	ready := metav1.Condition{Type: v1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1.ReasonLinksUp, Message: "m", ObservedGeneration: 2}
	cases := map[string]struct {
		reason     string
		conditions []metav1.Condition
		want       string
	}{
		"One":  {reason: "The owner's condition is in the list.", conditions: []metav1.Condition{ready}, want: `"type":"Ready"`},
		"None": {reason: "An empty list removes the owner's conditions, where a missing one would be rejected.", want: `"conditions":[]`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := &statusRecorder{}
			ref := network.Ref{Kind: v1.KindTenantNetwork, Namespace: "ns", Name: "a"}
			if err := ApplyConditions(t.Context(), r, ref, "u", "owner", tc.conditions...); err != nil {
				t.Fatal(err)
			}
			for _, part := range []string{tc.want, `"kind":"TenantNetwork"`, `"namespace":"ns"`, `"name":"a"`, `"uid":"u"`} {
				if !strings.Contains(r.applied, part) {
					t.Errorf("%s: applied %s, want %s in it", tc.reason, r.applied, part)
				}
			}
			if strings.Contains(r.applied, "resourceVersion") {
				t.Errorf("applied %s: a claim at the same time must not make it fail", r.applied)
			}
		})
	}
	broken := errors.New("broken")
	if err := ApplyConditions(t.Context(), &statusRecorder{err: broken}, network.Ref{Kind: v1.KindDanmNet, Name: "a"}, "u", "owner"); !errors.Is(err, broken) {
		t.Errorf("got %v, want the API server's error in it", err)
	}
}
