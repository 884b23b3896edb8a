// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package webhook

import (
	"context"
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/kube"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

// A network that was deleted between the list and the start of the watches leaves the index and
// frees its VLAN, and one that was created in between is seen.
func TestInformerForgetsNetworksDeletedDuringStart(t *testing.T) {
	t.Parallel()
	env := apitest.Start(t)
	device := apitest.Name("d")[:12]
	create := func(vlan int32) network.Ref {
		cn := &v1.ClusterNetwork{ObjectMeta: metav1.ObjectMeta{Name: apitest.Name("net")}, Spec: v1.NetworkSpec{
			NetworkID: apitest.Name("n")[:8], Options: v1.NetworkOptions{Device: device, VLAN: vlan}}}
		if err := env.Client.Create(t.Context(), cn); err != nil {
			t.Fatal(err)
		}
		return kube.NetworkRefOf(v1.KindClusterNetwork, cn)
	}
	remove := func(ref network.Ref) {
		cn := &v1.ClusterNetwork{ObjectMeta: metav1.ObjectMeta{Name: ref.Name}}
		if err := env.Client.Delete(t.Context(), cn); err != nil {
			t.Fatal(err)
		}
	}
	taken := func(c *networkIndex, vlan int) bool {
		return c.isTaken(network.TenantSlot{Kind: network.SlotVLAN, Device: device, ID: vlan})
	}
	stays, ghost := create(100), create(101)
	f, watches := startInformer(t, env)
	if err := f.listAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !taken(f.index, 100) || !taken(f.index, 101) {
		t.Fatal("the list has not both networks")
	}
	remove(ghost)
	late := create(102)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 2)
	go func() { done <- watches.Start(ctx) }()
	go func() { done <- f.Start(ctx) }()
	defer func() {
		cancel()
		if err := errors.Join(<-done, <-done); err != nil {
			t.Errorf("end: %v", err)
		}
	}()
	for deadline := time.Now().Add(time.Minute); taken(f.index, 101) || !taken(f.index, 102); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("after a minute: the ghost is there: %v, the late one: %v", taken(f.index, 101), taken(f.index, 102))
		}
	}
	if !taken(f.index, 100) {
		t.Error("the network that stays is not known any more")
	}
	remove(stays)
	remove(late)
}

// startInformer returns an informer whose watches have not started.
func startInformer(t *testing.T, env *apitest.Env) (*networkInformer, cache.Cache) {
	t.Helper()
	c, err := newClient(env.Config)
	if err != nil {
		t.Fatal(err)
	}
	scheme, err := newScheme()
	if err != nil {
		t.Fatal(err)
	}
	watches, err := cache.New(env.Config, cache.Options{Scheme: scheme, Mapper: newMapper()})
	if err != nil {
		t.Fatal(err)
	}
	return newNetworkInformer(watches, c, newNetworkIndex(), func(client.Object) {}), watches
}
