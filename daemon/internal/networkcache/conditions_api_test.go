// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package networkcache

import (
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/daemon/internal/kubetest"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

// A condition of an invalid network becomes True when the network is valid. The test writes the
// condition itself, because the API server rejects invalid networks.
func TestNetworkConditionsClearInvalid(t *testing.T) {
	t.Parallel()
	env := apitest.Start(t)
	cn := kubetest.ClusterNetwork(t, env)
	meta.SetStatusCondition(&cn.Status.Conditions, readyCondition(cn.Generation, errors.New("spec.Options.cidr: must be a subnet")))
	if err := env.Client.Status().Update(t.Context(), cn); err != nil {
		t.Fatal(err)
	}
	c := NewConditions(kubetest.Connect(t, env).Direct)
	c.Observe(cn, nil, nil)
	for range 2 {
		if err := c.sync(t.Context(), kubetest.Ref(cn)); err != nil {
			t.Fatal(err)
		}
	}
	got := &v1.ClusterNetwork{}
	if err := env.Client.Get(t.Context(), client.ObjectKeyFromObject(cn), got); err != nil {
		t.Fatal(err)
	}
	ready := meta.FindStatusCondition(got.Status.Conditions, v1.ConditionReady)
	if ready == nil || ready.Status != metav1.ConditionTrue || ready.Reason != v1.ReasonNetworkValid {
		t.Errorf("condition of a corrected network: got %+v, want True with reason Valid", ready)
	}
}
