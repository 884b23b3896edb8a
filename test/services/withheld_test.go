// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package services

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/test/apitest"
	"github.com/patchbay-cni/patchbay/test/services/scene"
)

// A Service leads neither to the API server nor to a Pod that is none of its own
// (CVE-2021-25740), whatever DanmEps say: not at first, and not when the victim comes later.
func TestVictimsAreNotPublished(t *testing.T) {
	t.Parallel()
	s := startFixture(t)
	svc := s.service("web")
	s.addPod("good", "web", "10.0.0.1/8", "", true)
	s.addPod("api", "web", "10.96.0.1/8", "", true) // the Service "kubernetes"
	s.addPod("out", "web", "192.0.2.77/24", "", true)
	s.addPod("thief", "web", "10.222.0.9/8", "", true)
	s.awaitEndpoints("what is harmless", "web", "10.0.0.1 web:8080/TCP ready,serving good", "10.222.0.9 web:8080/TCP ready,serving thief")
	s.awaitEvent(svc, "AddressWithheld", "spec.Options.cidr", "10.96.0.1", "which the cluster uses for Services", "1 more")
	victim := scene.Pod(s.ns, "victim", "none")
	s.create(victim)
	s.must(scene.SetStatus(s.Context(), s.c, victim, corev1.PodStatus{
		Phase: corev1.PodRunning, PodIP: "10.222.0.9", PodIPs: []corev1.PodIP{{IP: "10.222.0.9"}},
	}))
	s.awaitEndpoints("the victim's address is withdrawn", "web", "10.0.0.1 web:8080/TCP ready,serving good")
}

// A tenant's Service leads into the nodes' subnet where a netadmin permits that, and not to
// the node.
func TestPermittedInTheNodesSubnet(t *testing.T) {
	t.Parallel()
	s := startFixture(t)
	s.create(&v1.TenantConfig{
		ObjectMeta: metav1.ObjectMeta{Name: apitest.Name("tenants")}, AllowedClusterSubnets: []v1.TenantSubnet{"198.18.0.0/25"},
		HostDevices: []v1.HostDevice{{Name: "ens9"}}, NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: s.ns}},
	})
	lan := &v1.TenantNetwork{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "lan"}, Spec: v1.NetworkSpec{
		NetworkID: "lan", NetworkType: v1.TypeMACVLAN, Options: v1.NetworkOptions{CIDR: "198.18.0.0/24"},
	}}
	s.create(lan)
	node := &v1.NodeNetwork{ObjectMeta: metav1.ObjectMeta{Name: apitest.Name("node")}}
	s.create(node)
	node.Status.NICs = []v1.NIC{{Name: "ens4", Addresses: []string{"198.18.0.1/24"}}}
	s.must(s.c.Status().Update(s.Context(), node))
	svc := s.service("web", func(svc *corev1.Service) {
		delete(svc.Annotations, "danm.io/clusterNetwork")
		svc.Annotations["danm.io/tenantNetwork"] = "lan"
	})
	for name, address := range map[string]string{"beside": "198.18.0.9/24", "apart": "198.18.0.200/24", "node": "198.18.0.1/24"} {
		pod := scene.Pod(s.ns, name, "web")
		s.create(pod)
		ep := scene.DanmEp(pod, &v1.ClusterNetwork{ObjectMeta: lan.ObjectMeta, Spec: lan.Spec}, address, "")
		ep.Spec.APIType = v1.KindTenantNetwork
		s.create(ep)
		s.must(scene.SetReady(s.Context(), s.c, pod, true))
	}
	s.awaitEvent(svc, "AddressWithheld", "198.18.0.1 ", "1 more")
	s.awaitEndpoints("what the netadmin permits, but for the node", "web", "198.18.0.9 web:8080/TCP ready,serving beside")
}
