// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package cluster

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/svcwatcher"
)

// A client reaches a Service by its name in DNS through its second interface. What is
// not ready gets no new connection, and what was deleted never comes back.
func TestServiceOnSecondInterface(t *testing.T) {
	t.Parallel()
	c, ns := shared, shared.namespace(t)
	c.create(t, vlan("services", "svc", 590, "10.59.0.0/24"))
	s := &serviceFixture{cluster: c, T: t, ns: ns, dns: c.coreDNS(t)}
	s.newService("services", nil)
	client := s.newClientPod()
	first, second := s.newServerPod("first", c.nodes[0]), s.newServerPod("second", c.nodes[1])
	for _, p := range []*corev1.Pod{client, first, second} {
		c.awaitRunning(t.Context(), t, p)
	}
	at := map[string]netip.Addr{"first": c.addresses(t, first, "eth1")[0], "second": c.addresses(t, second, "eth1")[0]}
	s.awaitResolved("both are ready", at["first"], at["second"])
	for _, a := range at {
		s.checkRoute(client, a)
	}
	s.awaitAnswers(client, "first", "second")

	s.makeUnready(first)
	s.awaitResolved("the first is not ready", at["second"])
	s.checkNotServed(client, "first")
	s.execIdempotent(first, "touch", "/www/ready")
	s.awaitResolved("the first is ready again", at["first"], at["second"])

	c.delete(t, first)
	s.awaitResolved("the first was deleted", at["second"])
	again := s.newServerPod("first", c.nodes[0])
	c.awaitRunning(t.Context(), t, again)
	fresh := c.addresses(t, again, "eth1")[0]
	s.awaitResolved("the new Pod has its own address", fresh, at["second"])
	s.checkAddressNotServed(at["first"], fresh)
}

// Kubernetes' own controllers leave our slices alone, do not make them twice from
// Endpoints, and collect them with the Service.
func TestServiceAmongKubernetesControllers(t *testing.T) {
	t.Parallel()
	c, ns := shared, shared.namespace(t)
	c.create(t, vlan("mirrored", "mir", 591, "10.59.1.0/24"))
	s := &serviceFixture{cluster: c, T: t, ns: ns}
	p := pod(ns, "only", c.nodes[0], interfaceAnnotation("mirrored", "dynamic"))
	p.Labels = map[string]string{"app": "web"}
	c.create(t, p)
	svc := s.newService("mirrored", map[string]string{svcwatcher.EndpointsAnnotation: "true"})
	c.awaitRunning(t.Context(), t, p)
	c.await(t.Context(), t, "the Service has Endpoints", func(ctx context.Context) string {
		var e corev1.Endpoints
		if err := c.Get(ctx, client.ObjectKeyFromObject(svc), &e); err != nil {
			return err.Error()
		}
		if len(e.Subsets) != 1 {
			return fmt.Sprintf("they are %+v", e.Subsets)
		}
		return ""
	})
	s.awaitMirrored() // by now Kubernetes would have made slices of ours, too
	if owners := s.sliceManagers(t.Context(), "web"); !slices.Equal(owners, []string{svcwatcher.ManagedBy}) {
		t.Errorf("slices of the Service are managed by %v, want one of ours", owners)
	}
	c.delete(t, svc)
	c.await(t.Context(), t, "nothing is left of the Service", func(ctx context.Context) string {
		err := c.Get(ctx, client.ObjectKeyFromObject(svc), &corev1.Endpoints{})
		if owners := s.sliceManagers(ctx, "web"); len(owners) > 0 || client.IgnoreNotFound(err) != nil || err == nil {
			return fmt.Sprintf("slices of %v, Endpoints: %v", owners, err)
		}
		return ""
	})
}

// awaitMirrored waits until Kubernetes has made slices of Endpoints that a user wrote.
func (s *serviceFixture) awaitMirrored() {
	s.Helper()
	meta := metav1.ObjectMeta{Namespace: s.ns, Name: "manual"}
	s.create(s.T, &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{
		ClusterIP: corev1.ClusterIPNone, Ports: []corev1.ServicePort{{Port: 80}},
	}})
	s.create(s.T, &corev1.Endpoints{ObjectMeta: meta, Subsets: []corev1.EndpointSubset{
		{Addresses: []corev1.EndpointAddress{{IP: "192.0.2.1"}}, Ports: []corev1.EndpointPort{{Port: 80}}},
	}})
	s.await(s.Context(), s.T, "a user's Endpoints are mirrored", func(ctx context.Context) string {
		if owners := s.sliceManagers(ctx, "manual"); len(owners) == 0 {
			return "they are not"
		}
		return ""
	})
}

// sliceManagers says who manages the slices of a Service.
func (s *serviceFixture) sliceManagers(ctx context.Context, service string) []string {
	var list discoveryv1.EndpointSliceList
	if err := s.List(ctx, &list, client.InNamespace(s.ns), client.MatchingLabels{discoveryv1.LabelServiceName: service}); err != nil {
		return []string{err.Error()}
	}
	var owners []string
	for i := range list.Items {
		owners = append(owners, list.Items[i].Labels[discoveryv1.LabelManagedBy])
	}
	return owners
}

// serviceFixture is a namespace with a Service "web" on a network.
type serviceFixture struct {
	*cluster
	*testing.T

	ns, dns string
}

// newService makes the Service for Pods on a network.
func (s *serviceFixture) newService(network string, annotations map[string]string) *corev1.Service {
	s.Helper()
	svc := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "web", Annotations: map[string]string{
			"danm.io/selector": `{"app":"web"}`, "danm.io/clusterNetwork": network,
		}},
		Spec: corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, Ports: []corev1.ServicePort{
			{Name: "web", Port: 80, TargetPort: intstr.FromInt32(8080)},
		}},
	}
	maps.Copy(svc.Annotations, annotations)
	s.create(s.T, svc)
	return svc
}

const defaultAndServices = `[{"clusterNetwork":"default"},{"clusterNetwork":"services","ip":"dynamic"}]`

// newServerPod answers on port 8080 with its name, on any interface, and is ready while it
// has a file.
func (s *serviceFixture) newServerPod(name, node string) *corev1.Pod {
	s.Helper()
	p := pod(s.ns, name, node, defaultAndServices)
	p.Labels = map[string]string{"app": "web"}
	main := &p.Spec.Containers[0]
	main.Command = []string{"sh", "-c", "mkdir -p /www && echo " + name + " > /www/index.html && touch /www/ready && exec httpd -f -p 8080 -h /www"}
	main.ReadinessProbe = &corev1.Probe{
		PeriodSeconds: 1, TimeoutSeconds: 10, FailureThreshold: 1,
		ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/ready", Port: intstr.FromInt32(8080)}},
	}
	s.create(s.T, p)
	return p
}

// newClientPod sleeps, and asks CoreDNS for names.
func (s *serviceFixture) newClientPod() *corev1.Pod {
	s.Helper()
	p := pod(s.ns, "client", s.nodes[2], defaultAndServices)
	p.Spec.DNSPolicy = corev1.DNSNone
	p.Spec.DNSConfig = &corev1.PodDNSConfig{Nameservers: []string{s.dns}}
	s.create(s.T, p)
	return p
}

// dnsName is the Service's in DNS.
func (s *serviceFixture) dnsName() string { return "web." + s.ns + ".svc.cluster.local" }

// makeUnready takes the file from a server, waits until its Pod says so, and reports how
// long the name resolved to it after that.
func (s *serviceFixture) makeUnready(p *corev1.Pod) {
	s.Helper()
	address := s.addresses(s.T, p, "eth1")[0]
	s.execIdempotent(p, "rm", "-f", "/www/ready")
	s.await(s.Context(), s.T, p.Name+" is not ready", func(ctx context.Context) string {
		if err := s.Get(ctx, client.ObjectKeyFromObject(p), p); err != nil {
			return err.Error()
		}
		for _, condition := range p.Status.Conditions {
			if condition.Type == corev1.PodReady && condition.Status == corev1.ConditionFalse {
				return ""
			}
		}
		return "it still is"
	})
	began := time.Now()
	s.await(s.Context(), s.T, "the name resolves to "+p.Name+" no more", func(ctx context.Context) string {
		if got, err := s.lookup(ctx); err != nil || slices.Contains(got, address) {
			return fmt.Sprintf("it is %v (error: %v)", got, err)
		}
		return ""
	})
	took := time.Since(began)
	s.Logf("%s was in DNS for at most %v after its Pod was seen unready", p.Name, took.Round(time.Millisecond))
	if took > 2*time.Second*slowdownFactor {
		s.Errorf("%s was in DNS for %v after its Pod was unready, want at most 2 s on hardware", p.Name, took)
	}
}

// slowdownFactor is how much slower than hardware a lab may be that others use, too.
const slowdownFactor = 5

// checkRoute checks that a Pod reaches an address through its second interface.
func (s *serviceFixture) checkRoute(p *corev1.Pod, a netip.Addr) {
	s.Helper()
	if out := s.runInPod(s.T, p, "ip route get "+a.String()+" && echo that was all", "that was all"); !strings.Contains(out, " dev eth1 ") {
		s.Errorf("%s reaches %s by %q, want its eth1", p.Name, a, out)
	}
}

// fetchNames resolves the Service's name in a Pod, connects to each address and returns the
// names of the servers that answer. What is linked statically crashes in libc's resolver
// where there is no libc, wget even for an address: busybox' own resolver and nc do not.
func (s *serviceFixture) fetchNames(ctx context.Context, from *corev1.Pod) ([]string, error) {
	const script = `for a in $(nslookup -type=a "$0" | sed -n '/^Name:/,$ s/^Address: //p'); do printf 'GET / HTTP/1.0\r\n\r\n' | nc -w 5 "$a" 8080 | sed '1,/^\r*$/d'; done`
	out, err := s.lab.Kubectl(ctx, "exec", "-n", s.ns, from.Name, "--", "sh", "-c", script, s.dnsName())
	return strings.Fields(out), err
}

// awaitAnswers waits until these servers answer, and no other.
func (s *serviceFixture) awaitAnswers(from *corev1.Pod, names ...string) {
	s.Helper()
	s.await(s.Context(), s.T, fmt.Sprintf("%v answer by the Service's name", names), func(ctx context.Context) string {
		got, err := s.fetchNames(ctx, from)
		slices.Sort(got)
		if err != nil || !slices.Equal(got, names) {
			return fmt.Sprintf("%v do (error: %v)", got, err)
		}
		return ""
	})
}

// checkNotServed checks that the Service answers, and that a server does not.
func (s *serviceFixture) checkNotServed(from *corev1.Pod, server string) {
	s.Helper()
	answered := 0
	for range 10 {
		got, err := s.fetchNames(s.Context(), from)
		if slices.Contains(got, server) {
			s.Errorf("%s got a new connection", server)
		}
		if err == nil && len(got) > 0 {
			answered++
		}
	}
	if answered == 0 {
		s.Error("nobody answered")
	}
}

// checkAddressNotServed moves the Service's Pods about and checks that an address is never
// behind its name.
func (s *serviceFixture) checkAddressNotServed(gone, but netip.Addr) {
	s.Helper()
	if gone == but {
		s.Logf("the new Pod got the address of the old one") // pools of this size give others first
		return
	}
	for i := range 3 {
		p := s.newServerPod(fmt.Sprintf("more-%d", i), s.nodes[i%2])
		s.awaitRunning(s.Context(), s.T, p)
		a := s.addresses(s.T, p, "eth1")[0]
		s.await(s.Context(), s.T, "one more is behind the name", func(ctx context.Context) string {
			got, err := s.lookup(ctx)
			if slices.Contains(got, gone) {
				s.Errorf("the deleted Pod's %s is behind the name again", gone)
			}
			if err != nil || !slices.Contains(got, a) {
				return fmt.Sprintf("it is %v, without %s (error: %v)", got, a, err)
			}
			return ""
		})
	}
}

// awaitResolved waits until the name has exactly these addresses.
func (s *serviceFixture) awaitResolved(why string, want ...netip.Addr) {
	s.Helper()
	slices.SortFunc(want, netip.Addr.Compare)
	s.await(s.Context(), s.T, why, func(ctx context.Context) string {
		if got, err := s.lookup(ctx); err != nil || !slices.Equal(got, want) {
			return fmt.Sprintf("%s is %v, want %v (error: %v)", s.dnsName(), got, want, err)
		}
		return ""
	})
}

// execIdempotent runs a program in a Pod, which may be done twice.
func (s *serviceFixture) execIdempotent(p *corev1.Pod, args ...string) {
	s.Helper()
	s.await(s.Context(), s.T, fmt.Sprintf("%v runs in %s", args, p.Name), func(ctx context.Context) string {
		if _, err := s.lab.Kubectl(ctx, append([]string{"exec", "-n", s.ns, p.Name, "--"}, args...)...); err != nil {
			return err.Error()
		}
		return ""
	})
}
