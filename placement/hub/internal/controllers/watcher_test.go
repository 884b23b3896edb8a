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
)

// flaky refuses its first watch.
type flaky struct {
	controller.TypedController[Key]
	calls int
}

func (f *flaky) Watch(source.TypedSource[Key]) error {
	if f.calls++; f.calls == 1 {
		return errors.New("not now")
	}
	return nil
}

// A kind whose watch fails is watched at the next look, and keeps no other from it.
func TestFailedWatchIsTriedAgain(t *testing.T) {
	t.Parallel()
	verbs := metav1.Verbs{"get", "list", "watch", "create", "update", "patch", "delete"}
	d := &fakediscovery.FakeDiscovery{Fake: &clienttesting.Fake{Resources: []*metav1.APIResourceList{{
		GroupVersion: "apps/v1", APIResources: []metav1.APIResource{
			{Name: "deployments", Kind: "Deployment", Namespaced: true, Verbs: verbs},
			{Name: "statefulsets", Kind: "StatefulSet", Namespaced: true, Verbs: verbs},
		},
	}}}}
	ctl := &flaky{}
	w := newWatcher(&hub{kinds: &kinds{}}, ctl, d)
	if err := w.look(t.Context()); err == nil || ctl.calls != 2 || len(w.kinds.all()) != 1 {
		t.Errorf("first look: got %v, %d watches, %d kinds; want an error, 2 and 1", err, ctl.calls, len(w.kinds.all()))
	}
	if err := w.look(t.Context()); err != nil || ctl.calls != 3 || len(w.kinds.all()) != 2 {
		t.Errorf("second look: got %v, %d watches, %d kinds; want none, 3 and 2", err, ctl.calls, len(w.kinds.all()))
	}
}
