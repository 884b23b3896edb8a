// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package services

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/test/apitest"
	"github.com/patchbay-cni/patchbay/test/services/scene"
)

const (
	tcp   = " web:8080/TCP "
	ready = tcp + "ready,serving "
)

// The life of Pods behind a Service, from their start to their end.
func TestPods(t *testing.T) {
	t.Parallel()
	s := startFixture(t)
	s.service("web")
	a := s.addPod("a", "web", "10.0.0.1/8", "fd00::1/32", true)
	b := s.addPod("b", "web", "10.0.0.2/8", "", false)
	s.addPod("c", "other", "10.0.0.3/8", "fd00::3/32", true)
	s.awaitEndpoints("a is ready, b not, c another's", "web", "10.0.0.1"+ready+"a", "fd00::1"+ready+"a", "10.0.0.2"+tcp+" b")

	s.must(scene.SetReady(s.Context(), s.c, b, true))
	s.awaitEndpoints("b becomes ready", "web", "10.0.0.1"+ready+"a", "fd00::1"+ready+"a", "10.0.0.2"+ready+"b")

	edit(s, a, func(p *corev1.Pod) { p.Labels["app"] = "maintenance" })
	s.awaitEndpoints("a is relabelled; its DanmEp has the old label", "web", "10.0.0.2"+ready+"b")
	edit(s, a, func(p *corev1.Pod) { p.Labels["app"] = "web" })
	s.awaitEndpoints("a is back", "web", "10.0.0.1"+ready+"a", "fd00::1"+ready+"a", "10.0.0.2"+ready+"b")

	s.must(s.c.Delete(s.Context(), a, client.GracePeriodSeconds(300)))
	s.awaitEndpoints("a terminates and still serves", "web", "10.0.0.1"+tcp+"serving,terminating a", "fd00::1"+tcp+"serving,terminating a", "10.0.0.2"+ready+"b")
	s.must(scene.SetReady(s.Context(), s.c, a, false))
	s.awaitEndpoints("a serves no more", "web", "10.0.0.1"+tcp+"terminating a", "fd00::1"+tcp+"terminating a", "10.0.0.2"+ready+"b")
	s.must(scene.Kill(s.Context(), s.c, a))
	s.awaitEndpoints("a is gone, its DanmEp not yet", "web", "10.0.0.2"+ready+"b")

	s.addPod("a", "web", "10.0.0.9/8", "", true)
	s.awaitEndpoints("the new Pod of a's name has its own address only", "web", "10.0.0.9"+ready+"a", "10.0.0.2"+ready+"b")

	s.must(scene.SetStatus(s.Context(), s.c, b, corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted"}))
	s.awaitEndpoints("b was evicted", "web", "10.0.0.9"+ready+"a")
}

// The interface goes and comes while the Pod stays: its sandbox was made anew.
func TestSandboxRecreated(t *testing.T) {
	t.Parallel()
	s := startFixture(t)
	s.service("web")
	pod := s.addPod("a", "web", "10.0.0.1/8", "", true)
	s.awaitEndpoints("the first sandbox", "web", "10.0.0.1"+ready+"a")
	s.must(s.c.Delete(s.Context(), scene.DanmEp(pod, s.net, "", "")))
	s.awaitEndpoints("the sandbox went", "web")
	s.create(scene.DanmEp(pod, s.net, "10.0.0.2/8", ""))
	s.awaitEndpoints("another address", "web", "10.0.0.2"+ready+"a")
}

// deleteByForce deletes a network that a Pod is on, as its DanmEp shows, with the finalizer that keeps it.
func (s *fixture) deleteByForce(n *v1.ClusterNetwork) {
	s.Helper()
	s.must(s.c.Delete(s.Context(), n))
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata": {"finalizers": null}}`))
	s.must(client.IgnoreNotFound(s.c.Patch(s.Context(), n.DeepCopy(), patch)))
}

// A Service on two networks has the union, and nothing of a namespace that is not its.
func TestNetworksAndNamespaces(t *testing.T) {
	t.Parallel()
	s := startFixture(t)
	s.service("web")
	pod := s.addPod("a", "web", "10.0.0.1/8", "", true)
	second := scene.Network(apitest.Name("second"))
	s.create(second)
	s.create(scene.DanmEp(pod, second, "10.1.0.1/8", ""))
	elsewhere := newFixture(t, s.env)
	foreign := scene.Pod(elsewhere.ns, "a", "web")
	s.must(scene.Add(s.Context(), s.c, foreign, s.net, "10.0.0.66/8", "", true))
	s.awaitEndpoints("one network", "web", "10.0.0.1"+ready+"a")

	svc := scene.Service(s.ns, "web", "web", s.net.Name)
	edit(s, svc, func(svc *corev1.Service) { svc.Annotations["danm.io/clusterNetwork"] = second.Name })
	s.awaitEndpoints("the other network", "web", "10.1.0.1"+ready+"a")

	s.deleteByForce(second)
	s.awaitEndpoints("the network was deleted", "web")
	s.awaitEvent(svc, "NetworkNotFound", second.Name)
	again := scene.Network(second.Name)
	s.create(again)
	s.create(scene.DanmEp(s.addPod("b", "web", "10.0.0.2/8", "", true), again, "10.1.0.2/8", ""))
	s.awaitEndpoints("a network of the same name has its own endpoints only", "web", "10.1.0.2"+ready+"b")

	edit(s, again, func(n *v1.ClusterNetwork) { n.Spec.AllowedTenants = []string{elsewhere.ns} })
	s.awaitEndpoints("the network is for others now", "web")
	s.awaitEvent(svc, "NetworkNotAllowed", again.Name, "AllowedTenants")
	edit(s, again, func(n *v1.ClusterNetwork) { n.Spec.AllowedTenants = append(n.Spec.AllowedTenants, s.ns) })
	s.awaitEndpoints("and for this namespace again", "web", "10.1.0.2"+ready+"b")
}

// Ports by number and name, of each protocol; Pods with another number under a name
// are in another slice.
func TestPorts(t *testing.T) {
	t.Parallel()
	s := startFixture(t)
	svc := s.service("web", func(svc *corev1.Service) {
		svc.Spec.Ports = []corev1.ServicePort{
			{Name: "web", Port: 80, TargetPort: intstr.FromString("web")},
			{Name: "dns", Port: 53, Protocol: corev1.ProtocolUDP},
			{Name: "s1", Port: 36412, Protocol: corev1.ProtocolSCTP},
		}
	})
	s.addPod("a", "web", "10.0.0.1/8", "", true)
	other := scene.Pod(s.ns, "b", "web")
	other.Spec.Containers[0].Ports[0].ContainerPort = 9090
	s.must(scene.Add(s.Context(), s.c, other, s.net, "10.0.0.2/8", "", true))
	const rest = " dns:53/UDP s1:36412/SCTP ready,serving "
	s.awaitEndpoints("a name means what each Pod says", "web", "10.0.0.1 web:8080/TCP"+rest+"a", "10.0.0.2 web:9090/TCP"+rest+"b")
	edit(s, svc, func(svc *corev1.Service) { svc.Spec.Ports = svc.Spec.Ports[1:] })
	s.awaitEndpoints("a port went", "web", "10.0.0.1"+rest+"a", "10.0.0.2"+rest+"b")
	edit(s, svc, func(svc *corev1.Service) { svc.Spec.Ports = nil })
	s.awaitEndpoints("no port at all", "web", "10.0.0.1 ready,serving a", "10.0.0.2 ready,serving b")
}
