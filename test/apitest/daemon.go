// SPDX-License-Identifier: Apache-2.0

package apitest

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/v1"
	"github.com/patchbay-cni/patchbay/test/source"
)

// GrantNodeDaemon gives NodeDaemon the rights that deployments/daemon gives it,
// and waits until they are in force.
func GrantNodeDaemon(t testing.TB, e *Env) {
	t.Helper()
	dir, err := source.Path("deployments", "daemon")
	if err != nil {
		t.Fatal(err)
	}
	objects, err := ReadManifests(dir)
	if err != nil {
		t.Fatal(err)
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "patchbay-system"}}
	if err := client.IgnoreAlreadyExists(e.Client.Create(t.Context(), ns)); err != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
		if o.GetKind() == "DaemonSet" {
			continue
		}
		if err := client.IgnoreAlreadyExists(e.Client.Create(t.Context(), o)); err != nil {
			t.Fatalf("create %s %s: %v", o.GetKind(), o.GetName(), err)
		}
	}
	daemon := e.As(t, NodeDaemon("any"))
	deadline := time.Now().Add(startTimeout)
	for {
		err := daemon.List(t.Context(), &v1.ClusterNetworkList{})
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the daemon's rights are not in force: %v", err)
		}
		time.Sleep(pollInterval)
	}
}
