// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package services

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/svcwatcher"
	"github.com/patchbay-cni/patchbay/test/services/scene"
)

const selector = "danm.io/selector"

// Whatever a user does to a Service.
func TestServiceEdits(t *testing.T) {
	t.Parallel()
	s := startFixture(t)
	svc := s.service("web")
	a := s.addPod("a", "web", "10.0.0.1/8", "", true)
	b := s.addPod("b", "db", "10.0.0.2/8", "", true)
	s.awaitEndpoints("made", "web", "10.0.0.1"+ready+"a")
	edit(s, svc, func(svc *corev1.Service) { svc.Annotations[selector] = `{"app":"db"}` })
	s.awaitEndpoints("another selector", "web", "10.0.0.2"+ready+"b")

	edit(s, svc, func(svc *corev1.Service) { svc.Annotations[selector] = "app=web" })
	s.awaitEvent(svc, "InvalidAnnotations", selector, "app=web", "keeps the endpoints")
	s.awaitEndpoints("kept", "web", "10.0.0.2"+ready+"b")
	s.must(scene.SetReady(t.Context(), s.c, b, false))
	s.awaitEndpoints("kept, with what the Pod is", "web", "10.0.0.2"+tcp+" b")
	s.must(scene.Kill(t.Context(), s.c, b))
	s.awaitEndpoints("a Pod that is gone is not kept", "web")

	edit(s, svc, func(svc *corev1.Service) {
		svc.Annotations = map[string]string{"danm.k8s.io/selector": `{"app":"web"}`, "danm.k8s.io/clusterNetwork": s.net.Name}
	})
	s.awaitEndpoints("mended, with the older prefix", "web", "10.0.0.1"+ready+"a")
	edit(s, svc, func(svc *corev1.Service) { svc.Labels = map[string]string{"team": "t"} })
	s.eventually("the slices have the Service's labels", func(ctx context.Context) string {
		there, err := s.slices(ctx, "web")
		if err != nil || len(there) != 1 || there[0].Labels["team"] != "t" {
			return fmt.Sprintf("%v (error: %v)", there, err)
		}
		return ""
	})
	edit(s, svc, func(svc *corev1.Service) { svc.Spec.PublishNotReadyAddresses = true })
	s.must(scene.SetReady(t.Context(), s.c, a, false))
	s.awaitEndpoints("published in any state", "web", "10.0.0.1"+tcp+"ready a")
	edit(s, svc, func(svc *corev1.Service) { svc.Annotations = nil })
	s.awaitNoEndpoints("no annotation, nothing of ours", "web")
	edit(s, svc, func(svc *corev1.Service) { svc.Annotations = scene.Service(s.ns, "web", "web", s.net.Name).Annotations })
	s.awaitEndpoints("annotated again", "web", "10.0.0.1"+tcp+"ready a")
	s.must(s.c.Delete(t.Context(), svc))
	s.awaitNoEndpoints("deleted; no garbage collector runs here", "web")
	s.service("web")
	s.awaitEndpoints("made anew", "web", "10.0.0.1"+tcp+" a")
}

// What cannot be served says why, and has nothing of ours, before and after.
func TestInvalidServices(t *testing.T) {
	t.Parallel()
	s := startFixture(t)
	s.addPod("a", "web", "10.0.0.1/8", "", true)
	cases := map[string]struct {
		reason string
		edit   func(*corev1.Service)
		says   string
	}{
		"clusterip":    {reason: "one with an address", edit: func(svc *corev1.Service) { svc.Spec.ClusterIP = "" }, says: "headless"},
		"nodeport":     {reason: "one with ports on nodes", edit: func(svc *corev1.Service) { svc.Spec.ClusterIP, svc.Spec.Type = "", corev1.ServiceTypeNodePort }, says: "NodePort"},
		"loadbalancer": {reason: "one with a balancer", edit: func(svc *corev1.Service) { svc.Spec.ClusterIP, svc.Spec.Type = "", corev1.ServiceTypeLoadBalancer }, says: "LoadBalancer"},
		"alias": {reason: "one that is a name", edit: func(svc *corev1.Service) {
			svc.Spec = corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "example.com"}
		}, says: "ExternalName"},
		"selecting": {reason: "one that Kubernetes serves", edit: func(svc *corev1.Service) { svc.Spec.Selector = map[string]string{"app": "web"} }, says: "spec.selector"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &fixture{T: t, env: s.env, c: s.c, ns: s.ns, net: s.net}
			svc := scene.Service(s.ns, name, "web", s.net.Name)
			tc.edit(svc)
			s.create(svc)
			s.awaitEvent(svc, "UnsupportedService", tc.says)
			s.awaitNoEndpoints(tc.reason, name)
		})
	}
	svc := s.service("later", func(svc *corev1.Service) { svc.Annotations[selector] = `{"app":"web"}` })
	s.awaitEndpoints("served", "later", "10.0.0.1"+ready+"a")
	edit(s, svc, func(svc *corev1.Service) {
		svc.Spec.Selector = map[string]string{"app": "web"}
		// Without a selector it had both families, which this cluster has not.
		svc.Spec.IPFamilyPolicy, svc.Spec.IPFamilies = new(corev1.IPFamilyPolicySingleStack), svc.Spec.IPFamilies[:1]
	})
	s.awaitNoEndpoints("Kubernetes serves it now", "later")
	s.awaitEvent(svc, "UnsupportedService", "spec.selector")
}

// Slices of others stay as they are; ours come back as they were.
func TestOwnership(t *testing.T) {
	t.Parallel()
	s := startFixture(t)
	svc := s.service("web")
	s.addPod("a", "web", "10.0.0.1/8", "", true)
	s.awaitEndpoints("made", "web", "10.0.0.1"+ready+"a")
	foreign := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: s.ns, Name: "manual", Labels: map[string]string{discoveryv1.LabelServiceName: "web", discoveryv1.LabelManagedBy: "somebody"}},
		AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"192.0.2.1"}}},
	}
	s.create(foreign)
	ours := s.ownSlice()
	if refs := ours.OwnerReferences; len(refs) != 1 || refs[0].UID != svc.UID || refs[0].Kind != "Service" {
		t.Errorf("owners of slice %s: %+v, want the Service", ours.Name, refs)
	}
	s.must(s.c.Delete(t.Context(), ours))
	s.awaitEndpoints("deleted by hand", "web", "10.0.0.1"+ready+"a")
	ours = s.ownSlice()
	edit(s, ours, func(o *discoveryv1.EndpointSlice) {
		o.Endpoints[0].Addresses[0], o.Endpoints[0].TargetRef = "192.0.2.9", nil
	})
	s.awaitEndpoints("edited by hand", "web", "10.0.0.1"+ready+"a")
	for why, change := range map[string]func(*discoveryv1.EndpointSlice){
		"label removed": func(o *discoveryv1.EndpointSlice) { delete(o.Labels, discoveryv1.LabelServiceName) },
		"label changed": func(o *discoveryv1.EndpointSlice) { o.Labels[discoveryv1.LabelServiceName] = "other" },
	} {
		edit(s, s.ownSlice(), change)
		s.awaitEndpoints(why, "web", "10.0.0.1"+ready+"a")
	}
	ours = s.ownSlice()
	edit(s, ours, func(o *discoveryv1.EndpointSlice) { o.Labels[discoveryv1.LabelManagedBy] = "thief" })
	s.awaitEndpoints("taken by somebody, name and all", "web", "10.0.0.1"+ready+"a")
	s.must(s.c.Delete(t.Context(), svc))
	s.awaitNoEndpoints("the Service went", "web")
	there, err := s.slices(t.Context(), "web")
	s.must(err)
	var left []string
	for _, o := range there {
		left = append(left, o.Name)
	}
	slices.Sort(left)
	want := []string{"manual", ours.Name}
	slices.Sort(want)
	if diff := cmp.Diff(want, left); diff != "" {
		t.Errorf("slices of others (-want +got):\n%s", diff)
	}
}

// ownSlice is the one slice of ours that the Service web has.
func (s *fixture) ownSlice() *discoveryv1.EndpointSlice {
	s.Helper()
	var found *discoveryv1.EndpointSlice
	s.eventually("there is a slice of ours", func(ctx context.Context) string {
		there, err := s.slices(ctx, "web")
		for i := range there {
			if there[i].Labels[discoveryv1.LabelManagedBy] == svcwatcher.ManagedBy {
				found = &there[i]
				return ""
			}
		}
		return fmt.Sprint(len(there), " slices, none of ours ", err)
	})
	return found
}

// v1 Endpoints come and go on request, and others' stay.
func TestLegacyEndpoints(t *testing.T) {
	t.Parallel()
	s := startFixture(t)
	svc := s.service("web")
	s.addPod("a", "web", "10.0.0.1/8", "fd00::1/32", true)
	late := s.addPod("b", "web", "10.0.0.2/8", "", false)
	s.awaitEndpoints("slices", "web", "10.0.0.1"+ready+"a", "fd00::1"+ready+"a", "10.0.0.2"+tcp+" b")
	if got := s.legacyEndpoints(t.Context(), "web"); got != "none" {
		t.Errorf("Endpoints that nobody asked for: %s", got)
	}
	ask := func(svc *corev1.Service) {
		metav1.SetMetaDataAnnotation(&svc.ObjectMeta, svcwatcher.EndpointsAnnotation, "true")
	}
	edit(s, svc, ask)
	s.awaitLegacyEndpoints("on request, not mirrored", "web", "skip-mirror=true 10.0.0.1+ 10.0.0.2- fd00::1+")
	s.must(scene.SetReady(t.Context(), s.c, late, true))
	s.awaitLegacyEndpoints("kept up to date", "web", "skip-mirror=true 10.0.0.1+ 10.0.0.2+ fd00::1+")
	edit(s, svc, func(svc *corev1.Service) { delete(svc.Annotations, svcwatcher.EndpointsAnnotation) })
	s.awaitLegacyEndpoints("withdrawn", "web", "none")

	s.create(&corev1.Endpoints{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "taken"}, Subsets: []corev1.EndpointSubset{{Addresses: []corev1.EndpointAddress{{IP: "192.0.2.1"}}}}})
	taken := s.service("taken", ask)
	s.awaitEvent(taken, "EndpointsNotWritten", "taken", "already exists")
	s.awaitLegacyEndpoints("others' stay", "taken", "skip-mirror= 192.0.2.1+")
}

func (s *fixture) awaitLegacyEndpoints(why, service, want string) {
	s.Helper()
	s.eventually(why, func(ctx context.Context) string {
		if got := s.legacyEndpoints(ctx, service); got != want {
			return fmt.Sprintf("Endpoints are %q, want %q", got, want)
		}
		return ""
	})
}

// legacyEndpoints tells v1 Endpoints: + is ready, - is not.
func (s *fixture) legacyEndpoints(ctx context.Context, service string) string {
	var e corev1.Endpoints
	if err := s.c.Get(ctx, client.ObjectKey{Namespace: s.ns, Name: service}, &e); err != nil {
		if client.IgnoreNotFound(err) == nil {
			return "none"
		}
		return err.Error()
	}
	words := []string{}
	for _, subset := range e.Subsets {
		for _, a := range subset.Addresses {
			words = append(words, a.IP+"+")
		}
		for _, a := range subset.NotReadyAddresses {
			words = append(words, a.IP+"-")
		}
	}
	slices.Sort(words)
	return "skip-mirror=" + strings.Join(append([]string{e.Labels[discoveryv1.LabelSkipMirror]}, words...), " ")
}

// A Node's zone reaches the endpoints on it, also later.
func TestZone(t *testing.T) {
	t.Parallel()
	s := startFixture(t)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-of-" + s.ns, Labels: map[string]string{corev1.LabelTopologyZone: "z1"}}}
	s.create(node)
	s.service("web")
	pod := scene.Pod(s.ns, "a", "web")
	pod.Spec.NodeName = node.Name
	s.must(scene.Add(t.Context(), s.c, pod, s.net, "10.0.0.1/8", "", true))
	for _, zone := range []string{"z1", "z2"} {
		if node.Labels[corev1.LabelTopologyZone] != zone {
			edit(s, node, func(n *corev1.Node) { n.Labels[corev1.LabelTopologyZone] = zone })
		}
		s.eventually("the endpoint is in zone "+zone, func(ctx context.Context) string {
			there, err := s.slices(ctx, "web")
			if err != nil || len(there) != 1 || len(there[0].Endpoints) != 1 || there[0].Endpoints[0].Zone == nil || *there[0].Endpoints[0].Zone != zone {
				return fmt.Sprintf("%+v (error: %v)", there, err)
			}
			return ""
		})
	}
}

// A network that does not exist yet is said, and served when it comes.
func TestNetworkCreatedLater(t *testing.T) {
	t.Parallel()
	s := startFixture(t)
	svc := scene.Service(s.ns, "web", "web", s.net.Name+"-2")
	s.create(svc)
	s.awaitEvent(svc, "NetworkNotFound", s.net.Name+"-2")
	wrong := scene.Service(s.ns, "wrong-kind", "web", "")
	wrong.Annotations = map[string]string{selector: `{"app":"web"}`, "danm.io/network": s.net.Name}
	s.create(wrong)
	s.awaitEvent(wrong, "NetworkNotFound", fmt.Sprintf("DanmNet/%s/%s does not exist, but ClusterNetwork/%s exists: use the annotation danm.io/clusterNetwork", s.ns, s.net.Name, s.net.Name))
	s.net = scene.Network(s.net.Name + "-2")
	s.create(s.net)
	s.addPod("a", "web", "10.0.0.1/8", "", true)
	s.awaitEndpoints("it came", "web", "10.0.0.1"+ready+"a")
}

// The kinds of a namespace's own networks work as ClusterNetworks do.
func TestOwnNetworks(t *testing.T) {
	t.Parallel()
	s := startFixture(t)
	danm := &v1.DanmNet{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "own"}, Spec: s.net.Spec}
	s.create(danm)
	svc := scene.Service(s.ns, "web", "web", "")
	svc.Annotations = map[string]string{selector: `{"app":"web"}`, "danm.io/network": "own"}
	s.create(svc)
	pod := s.addPod("a", "web", "10.0.0.1/8", "", true)
	e := scene.DanmEp(pod, s.net, "10.0.0.2/8", "")
	e.Name, e.Spec.NetworkName, e.Spec.NetworkUID, e.Spec.APIType, e.Spec.Interface.Name = "own", "own", string(danm.UID), v1.KindDanmNet, "eth1"
	s.create(e)
	s.awaitEndpoints("the interface on the namespace's network only", "web", "10.0.0.2"+ready+"a")
}
