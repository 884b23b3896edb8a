// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package controller

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

// A replica is not ready while a kind is missing, at its start and later, and recovers by itself.
func TestReadinessWithoutKinds(t *testing.T) {
	env := apitest.New(t) // its definitions are deleted
	env.Kubectl(t, "delete", "crd", "networkviews.danm.io", "clusternetworks.danm.io")
	r := startWith(t, env, &options{namespace: namespace, healthAddress: freeAddress(t), nodeGrace: time.Minute, leaderElect: true})
	eventually(t, "the replica to name the missing kinds", notReady(r, "must serve the kinds ClusterNetwork, NetworkView of danm.io/v1"))
	env.InstallDefinitions(t)
	eventually(t, "the replica to be ready", r.ready)

	env.Kubectl(t, "delete", "crd", "networkviews.danm.io")
	eventually(t, "the replica to name the deleted kind", notReady(r, "must serve the kinds NetworkView of"))
	env.InstallDefinitions(t)
	eventually(t, "the replica to be ready again", r.ready)
	ns := env.Namespace(t)
	eventually(t, "the view of a new namespace", func(ctx context.Context) error {
		return env.Client.Get(ctx, client.ObjectKey{Namespace: ns, Name: v1.NetworkViewName}, &v1.NetworkView{})
	})
	if err := r.stop(); err != nil {
		t.Errorf("the replica ended with %v", err)
	}
}

// The controller of an uninstallation that has stopped halfway: all definitions were deleted, and one of them
// waits for the finalizer of a network. A replica that starts then needs the others again, and completes the
// deletion.
func TestStartDuringUninstallation(t *testing.T) {
	env := apitest.New(t) // its definitions are deleted
	unused := &v1.ClusterNetwork{
		ObjectMeta: metav1.ObjectMeta{Name: "unused", Finalizers: []string{v1.InUseFinalizer}},
		Spec:       v1.NetworkSpec{NetworkID: "unused", NetworkType: "macvlan", Options: v1.NetworkOptions{Device: "ens4"}},
	}
	if err := env.Client.Create(t.Context(), unused); err != nil {
		t.Fatal(err)
	}
	env.Kubectl(t, "delete", "--kustomize", apitest.Definitions(t), "--wait=false")
	for _, gone := range []string{"danmeps", "danmnets", "networkviews", "nodenetworks", "tenantconfigs", "tenantnetworks"} {
		env.Kubectl(t, "wait", "--for=delete", "--timeout=60s", "crd/"+gone+".danm.io")
	}
	r := startWith(t, env, &options{namespace: namespace, healthAddress: freeAddress(t), nodeGrace: time.Minute, leaderElect: true})
	eventually(t, "the replica to name the missing kinds", notReady(r, "must serve the kinds DanmEp, DanmNet, NetworkView, NodeNetwork, TenantConfig, TenantNetwork of"))
	eventually(t, "the replica to name the kind in deletion", notReady(r, "the CustomResourceDefinitions of ClusterNetwork"))
	env.Kubectl(t, "apply", "--server-side", "--force-conflicts", "--kustomize", apitest.Definitions(t))
	env.Kubectl(t, "wait", "--for=delete", "--timeout=60s", "crd/clusternetworks.danm.io")
	eventually(t, "the replica to name the deleted kind", notReady(r, "must serve the kinds ClusterNetwork of"))
	env.InstallDefinitions(t)
	eventually(t, "the replica to be ready", r.ready)
	if err := r.stop(); err != nil {
		t.Errorf("the replica ended with %v", err)
	}
}

// notReady returns a function that expects the text in the answer of /readyz.
func notReady(r *replica, text string) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := r.ready(ctx); err == nil || !strings.Contains(err.Error(), text) {
			return fmt.Errorf("got %w, want %q", err, text)
		}
		return nil
	}
}
