// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package kubeclient_test

import (
	"context"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/daemon/internal/kubeclient"
	"github.com/patchbay-cni/patchbay/daemon/internal/kubetest"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

func TestDaemonSetIsDeleted(t *testing.T) {
	t.Parallel()
	env := apitest.New(t) // an environment of its own, because the Role fixes the DaemonSet's name
	labels := map[string]string{"a": "b"}
	ds := &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "patchbay-system", Name: "patchbayd", Finalizers: []string{"example.com/test"}},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
			},
		},
	}
	conn := kubetest.Connect(t, env)
	step := func(what string, want bool) {
		t.Helper()
		got, err := conn.DaemonSetRemoval(t.Context(), "patchbay-system", "patchbayd")
		if err != nil || got.Deleted != want || got.CleanUp != "" {
			t.Errorf("%s: got %+v, %v, want %t", what, got, err, want)
		}
	}
	step("not created", true)
	if err := env.Client.Create(t.Context(), ds); err != nil {
		t.Fatal(err)
	}
	step("running", false)
	stranger, err := kubeclient.Connect(env.ConfigAs(apitest.Tenant("stranger")), kubetest.Node)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := stranger.DaemonSetRemoval(t.Context(), "patchbay-system", "patchbayd"); err != nil || !got.Deleted || got.CleanUp != "" {
		t.Errorf("without rights: got %+v, %v, want true", got, err)
	}
	if err := env.Client.Delete(t.Context(), ds); err != nil {
		t.Fatal(err)
	}
	step("being deleted", true)
	if err := env.Client.Patch(context.Background(), ds, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))); err != nil {
		t.Fatal(err)
	}
	step("gone", true)
}
