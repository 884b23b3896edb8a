// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package services

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/patchbay-cni/patchbay/test/services/scene"
)

// A real CoreDNS answers for the Service as for any other headless one.
func TestCoreDNS(t *testing.T) {
	t.Parallel()
	s := startFixture(t)
	server, err := scene.FreePort(t.Context())
	s.must(err)
	id, err := scene.CoreDNS(scene.CoreDNSConfig{Dir: t.TempDir(), Kubeconfig: s.env.ControlPlane.AdminKubeconfig(), Address: server})
	s.must(err)
	t.Cleanup(func() { s.must(id.Kill(context.WithoutCancel(t.Context()))) })

	s.service("web", func(svc *corev1.Service) {
		svc.Spec.Ports = []corev1.ServicePort{
			{Name: "web", Port: 80, TargetPort: intstr.FromString("web")},
			{Name: "dns", Port: 53, Protocol: corev1.ProtocolUDP},
		}
	})
	named := scene.Pod(s.ns, "a", "web")
	named.Spec.Hostname, named.Spec.Subdomain = "first", "web"
	s.must(scene.Add(t.Context(), s.c, named, s.net, "10.0.0.1/8", "fd00::1/32", true))
	s.addPod("b", "web", "10.0.0.2/8", "", true)
	slow := s.addPod("c", "web", "10.0.0.3/8", "", false)

	d := dnsChecker{fixture: s, resolver: scene.Resolver(server)}
	name := "web." + s.ns + ".svc." + scene.Domain + "."
	d.awaitHosts("A records of what is ready", name, "ip4", "10.0.0.1", "10.0.0.2")
	d.awaitHosts("AAAA records", name, "ip6", "fd00::1")
	d.awaitHosts("the Pod's own name", "first."+name, "ip4", "10.0.0.1")
	d.awaitSRV("the port of a name", name, "web", "tcp", "first."+name+" 8080", "10-0-0-2."+name+" 8080")
	d.awaitSRV("the port of a number", name, "dns", "udp", "first."+name+" 53", "10-0-0-2."+name+" 53")

	s.must(scene.SetReady(t.Context(), s.c, slow, true))
	d.awaitHosts("the third became ready", name, "ip4", "10.0.0.1", "10.0.0.2", "10.0.0.3")
	s.must(scene.SetReady(t.Context(), s.c, named, false))
	d.awaitHosts("the first is not", name, "ip4", "10.0.0.2", "10.0.0.3")
}

// dnsChecker asks the server until it says what is wanted.
type dnsChecker struct {
	*fixture

	resolver interface {
		LookupHost(ctx context.Context, name string) ([]string, error)
		LookupSRV(ctx context.Context, service, proto, name string) (string, []*net.SRV, error)
	}
}

func (d dnsChecker) awaitHosts(why, name, family string, want ...string) {
	d.Helper()
	d.eventually(why, func(ctx context.Context) string {
		all, err := d.resolver.LookupHost(ctx, name)
		got := slices.DeleteFunc(all, func(a string) bool { return strings.Contains(a, ":") != (family == "ip6") })
		return hostDiff(want, got, err)
	})
}

func (d dnsChecker) awaitSRV(why, name, port, protocol string, want ...string) {
	d.Helper()
	d.eventually(why, func(ctx context.Context) string {
		_, records, err := d.resolver.LookupSRV(ctx, port, protocol, name)
		var got []string
		for _, r := range records {
			// What a Pod without a hostname is called there is CoreDNS's affair.
			got = append(got, fmt.Sprintf("%s %d", r.Target, r.Port))
		}
		return hostDiff(want, got, err)
	})
}

func hostDiff(want, got []string, err error) string {
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		return fmt.Sprintf("records (-want +got):\n%s(error: %v)", diff, err)
	}
	return ""
}
