// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package networkcache

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/daemon/internal/kubetest"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

// recordingSettler records the networks that are settled.
type recordingSettler struct{ keys []network.Key }

// ReconcileEntries implements Settler.
func (s *recordingSettler) ReconcileEntries(_ context.Context, keys ...network.Key) error {
	s.keys = append(s.keys, keys...)
	return nil
}

// Finalizers settles each network in deletion once, and no other network.
func TestFinalizersSettleOnlyNetworksInDeletion(t *testing.T) {
	t.Parallel()
	env := apitest.Start(t)
	protect := func(cn *v1.ClusterNetwork) *v1.ClusterNetwork {
		cn.Finalizers = []string{v1.InUseFinalizer}
		if err := env.Client.Update(t.Context(), cn); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			cn.Finalizers, cn.ResourceVersion = nil, ""
			_ = env.Client.Patch(context.Background(), cn, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`)))
		})
		return cn
	}
	deleting, existing := protect(kubetest.ClusterNetwork(t, env)), protect(kubetest.ClusterNetwork(t, env))
	if err := env.Client.Delete(t.Context(), deleting, &client.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &deleting.UID}}); err != nil {
		t.Fatal(err)
	}
	settled := &recordingSettler{}
	f := NewFinalizers(env.Client, settled)
	if err := f.sync(t.Context(), kubetest.Ref(existing)); err != nil || len(settled.keys) > 0 {
		t.Errorf("a network that is not in deletion: got settled %v and error %v, want neither", settled.keys, err)
	}
	for range 2 { // once is enough: the Pods free their addresses when they end
		if err := f.sync(t.Context(), kubetest.Ref(deleting)); err != nil {
			t.Errorf("a network in deletion: %v", err)
		}
	}
	want := []network.Key{{Ref: kubetest.Ref(deleting), UID: string(deleting.UID)}}
	if diff := cmp.Diff(want, settled.keys); diff != "" {
		t.Errorf("settled networks (-want +got):\n%s", diff)
	}
	if err := f.sync(t.Context(), network.Ref{Kind: v1.KindClusterNetwork, Name: "nope"}); err != nil {
		t.Errorf("a network that is gone: %v", err)
	}
}
