// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package services

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/patchbay-cni/patchbay/test/apitest"
	"github.com/patchbay-cni/patchbay/test/services/scene"
)

// Two replicas: one leads. Whatever happens while nobody does is made up for by who
// leads next, from the API alone.
func TestRestart(t *testing.T) {
	t.Parallel()
	env := apitest.New(t) // a leader of its own
	s := newFixture(t, env)
	path, err := program()
	s.must(err)
	first, err := scene.Run(t.Context(), env, path)
	s.must(err)
	t.Cleanup(func() { _ = first.Kill(context.WithoutCancel(t.Context())) })
	s.service("web")
	gone := s.service("gone", func(svc *corev1.Service) { svc.Annotations[selector] = `{"app":"web"}` })
	plain := s.service("plain", func(svc *corev1.Service) { svc.Annotations[selector] = `{"app":"web"}` })
	var pods []*corev1.Pod
	for i := range 4 {
		pods = append(pods, s.addPod(fmt.Sprint("p", i), "web", fmt.Sprintf("10.0.0.%d/8", i+1), "", true))
	}
	all := []string{"10.0.0.1" + ready + "p0", "10.0.0.2" + ready + "p1", "10.0.0.3" + ready + "p2", "10.0.0.4" + ready + "p3"}
	for _, name := range []string{"web", "gone", "plain"} {
		s.awaitEndpoints("the first leads", name, all...)
	}

	s.must(first.Kill(t.Context()))
	s.must(scene.SetReady(t.Context(), s.c, pods[0], false))
	s.must(scene.Kill(t.Context(), s.c, pods[1]))
	edit(s, pods[2], func(p *corev1.Pod) { p.Labels["app"] = "other" })
	s.addPod("p1", "web", "10.0.0.9/8", "", true)
	edit(s, plain, func(svc *corev1.Service) { svc.Annotations = nil })
	s.must(s.c.Delete(t.Context(), gone))
	second, err := scene.Run(t.Context(), env, path)
	s.must(err)
	t.Cleanup(func() { _ = second.Kill(context.WithoutCancel(t.Context())) })
	s.awaitEndpoints("the second made up for it", "web", "10.0.0.1"+tcp+" p0", "10.0.0.9"+ready+"p1", "10.0.0.4"+ready+"p3")
	s.awaitNoEndpoints("its annotations went meanwhile", "plain")
	s.awaitNoEndpoints("it was deleted meanwhile", "gone")

	third, err := scene.Run(t.Context(), env, path)
	s.must(err)
	t.Cleanup(func() { _ = third.Kill(context.WithoutCancel(t.Context())) })
	s.must(second.Stop(t.Context(), waitTimeout))
	s.must(scene.SetReady(t.Context(), s.c, pods[0], true))
	s.awaitEndpoints("the third took over", "web", "10.0.0.1"+ready+"p0", "10.0.0.9"+ready+"p1", "10.0.0.4"+ready+"p3")
	writes, err := third.Writes(t.Context())
	s.must(err)
	if writes != 1 {
		t.Errorf("the third wrote %v times for one Pod that became ready, want once", writes)
	}
}
