// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"errors"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	fakediscovery "k8s.io/client-go/discovery/fake"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/patchbay-cni/patchbay/placement/hub/internal/kinds"
)

// failingOnce is a controller whose first watch fails.
type failingOnce struct {
	controller.TypedController[kinds.Key]
	calls int
}

func (f *failingOnce) Watch(source.TypedSource[kinds.Key]) error {
	if f.calls++; f.calls == 1 {
		return errors.New("not now")
	}
	return nil
}

// A kind whose watch fails is watched with the next update, and does not keep other kinds from it.
func TestFailedWatchIsTriedAgain(t *testing.T) {
	t.Parallel()
	verbs := metav1.Verbs{"get", "list", "watch", "create", "update", "patch", "delete"}
	d := &fakediscovery.FakeDiscovery{Fake: &clienttesting.Fake{Resources: []*metav1.APIResourceList{{
		GroupVersion: "apps/v1", APIResources: []metav1.APIResource{
			{Name: "deployments", Kind: "Deployment", Namespaced: true, Verbs: verbs},
			{Name: "statefulsets", Kind: "StatefulSet", Namespaced: true, Verbs: verbs},
		},
	}}}}
	ctl := &failingOnce{}
	w := newKindWatcher(nil, &kinds.Registry{}, ctl, d)
	if err := w.update(t.Context()); err == nil || ctl.calls != 2 || len(w.kinds.All()) != 1 {
		t.Errorf("first update: got %v, %d watches, %d kinds; want an error, 2 and 1", err, ctl.calls, len(w.kinds.All()))
	}
	if err := w.update(t.Context()); err != nil || ctl.calls != 3 || len(w.kinds.All()) != 2 {
		t.Errorf("second update: got %v, %d watches, %d kinds; want none, 3 and 2", err, ctl.calls, len(w.kinds.All()))
	}
}
