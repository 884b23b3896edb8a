// SPDX-License-Identifier: Apache-2.0

//go:build placement

package bed_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/test/placement/bed"
)

// A Deployment runs in a cluster, its Pods are ready when their annotation says, and
// the audit log has the admin's writes.
func TestClusterRunsPods(t *testing.T) {
	b, err := bed.Launch(t.Context(), bed.Config{Clusters: []string{"east"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	east := b.Clusters["east"]
	log, err := east.AuditLog()
	if err != nil {
		t.Fatal(err)
	}
	labels := map[string]string{"app": "web"}
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default"}, Spec: appsv1.DeploymentSpec{
		Replicas: ptr.To[int32](2), Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: map[string]string{bed.ReadyAfter: "1s"}},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		},
	}}
	if err := east.Client.Create(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(2 * time.Minute); d.Status.AvailableReplicas != 2; <-time.After(100 * time.Millisecond) {
		if err := east.Client.Get(t.Context(), client.ObjectKeyFromObject(d), d); err != nil {
			t.Fatal(err)
		}
		if time.Now().After(end) {
			t.Fatalf("not available: %+v", d.Status)
		}
	}
	writes, err := log.Writes()
	if err != nil {
		t.Fatal(err)
	}
	writes = slices.DeleteFunc(writes, func(w bed.Write) bool { return w.User != "admin" }) // not the controllers'
	if len(writes) != 1 || !writes[0].Created || writes[0].Object.GetUID() != d.UID {
		t.Errorf("audit log: got %v, want the Deployment's creation", fmt.Sprint(writes))
	}
}
