// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package cluster

import (
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

// The API server's rules keep invalid objects out, so that the condition is set
// by hand here as a daemon would with rules of its own.
func TestNetworkConditionsClearInvalid(t *testing.T) {
	t.Parallel()
	env := apitest.Start(t)
	cn := clusterNetwork(t, env)
	meta.SetStatusCondition(&cn.Status.Conditions, readyCondition(cn.Generation, errors.New("spec.Options.cidr: wrong")))
	if err := env.Client.Status().Update(t.Context(), cn); err != nil {
		t.Fatal(err)
	}
	v := NewNetworkConditions(connect(t, env).Direct)
	v.Observe(cn, nil, nil)
	for range 2 {
		if err := v.sync(t.Context(), ref(cn)); err != nil {
			t.Fatal(err)
		}
	}
	got := &v1.ClusterNetwork{}
	if err := env.Client.Get(t.Context(), client.ObjectKeyFromObject(cn), got); err != nil {
		t.Fatal(err)
	}
	c := meta.FindStatusCondition(got.Status.Conditions, ConditionReady)
	if c == nil || c.Status != metav1.ConditionTrue || c.Reason != reasonValid {
		t.Errorf("condition of a network that was corrected: %+v", c)
	}
}
