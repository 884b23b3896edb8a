// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package services

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/patchbay-cni/patchbay/svcwatcher"
	"github.com/patchbay-cni/patchbay/test/services/scene"
)

// A Service leads neither to the API server nor to a Pod that is none of its own
// (CVE-2021-25740), whatever DanmEps say: not at first, and not when the victim comes later.
func TestVictimsAreNotPublished(t *testing.T) {
	t.Parallel()
	s := start(t)
	svc := s.service("web")
	s.add("good", "web", "10.0.0.1/8", "", true)
	s.add("api", "web", "10.96.0.1/8", "", true) // the Service "kubernetes"
	s.add("out", "web", "192.0.2.77/24", "", true)
	s.add("thief", "web", "10.222.0.9/8", "", true)
	s.want("what is harmless", "web", "10.0.0.1 web:8080/TCP ready,serving good", "10.222.0.9 web:8080/TCP ready,serving thief")
	s.wantEvent(svc, svcwatcher.ReasonWithheld, "spec.Options.cidr", "10.96.0.1", "which the cluster uses for Services", "1 more")
	victim := scene.Pod(s.ns, "victim", "none")
	s.create(victim)
	s.must(scene.SetStatus(s.Context(), s.c, victim, corev1.PodStatus{
		Phase: corev1.PodRunning, PodIP: "10.222.0.9", PodIPs: []corev1.PodIP{{IP: "10.222.0.9"}},
	}))
	s.want("the victim's address is withdrawn", "web", "10.0.0.1 web:8080/TCP ready,serving good")
}
