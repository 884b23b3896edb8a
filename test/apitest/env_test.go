// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package apitest_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/test/apitest"
)

// What was stored after the backup is gone, and so is the count of versions.
func TestBackup(t *testing.T) {
	t.Parallel()
	env := apitest.New(t)
	store := func(name string) *corev1.ConfigMap {
		o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}}
		if err := env.Client.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		return o
	}
	old := store("old")
	restore := env.Backup(t)
	young := store("young")
	restore()
	eventually(t, "the API server answers", func() error {
		return env.Client.Get(t.Context(), client.ObjectKeyFromObject(old), &corev1.ConfigMap{})
	})
	if err := env.Client.Get(t.Context(), client.ObjectKeyFromObject(young), young); !apierrors.IsNotFound(err) {
		t.Errorf("what is younger than the backup: got %v, want NotFound", err)
	}
}
