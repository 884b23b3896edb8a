// SPDX-License-Identifier: Apache-2.0

package svcwatcher_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/svcwatcher"
)

// service returns a headless Service for app=web on ClusterNetwork red.
func service(edit ...func(*corev1.Service)) *corev1.Service {
	svc := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", UID: "svc", Annotations: map[string]string{
			"danm.io/selector": `{"app":"web"}`, "danm.io/clusterNetwork": "red",
		}},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, ClusterIP: corev1.ClusterIPNone,
			IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol},
			Ports:      []corev1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromInt32(8080), Protocol: corev1.ProtocolTCP}},
		},
	}
	for _, e := range edit {
		e(svc)
	}
	return svc
}

// pod returns a ready Pod on node n1.
func pod(name string, edit ...func(*corev1.Pod)) corev1.Pod {
	p := corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" + name), Labels: map[string]string{"app": "web", "x": "y"}},
		Spec:       corev1.PodSpec{NodeName: "n1"},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}},
	}
	for _, e := range edit {
		e(&p)
	}
	return p
}

// ep returns the DanmEp of a Pod on ClusterNetwork red.
func ep(pod, address, address6 string, edit ...func(*v1.DanmEp)) v1.DanmEp {
	e := v1.DanmEp{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "ep-" + pod + address + address6},
		Spec: v1.DanmEpSpec{
			NetworkName: "red", NetworkUID: "red-uid", APIType: v1.KindClusterNetwork, Pod: pod, PodUID: "uid-" + pod, Host: "n1",
			Interface: v1.DanmEpInterface{Name: "eth1", Address: address, AddressIPv6: address6},
		},
	}
	for _, f := range edit {
		f(&e)
	}
	return e
}

func unready(p *corev1.Pod)     { p.Status.Conditions[0].Status = corev1.ConditionFalse }
func terminating(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }

// ports sets the container's named ports.
func ports(named ...corev1.ContainerPort) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.Containers = []corev1.Container{{Ports: named}} }
}

// on sets the node that created a DanmEp.
func on(node string) func(*v1.DanmEp) { return func(e *v1.DanmEp) { e.Spec.Host = node } }

func publish(svc *corev1.Service) { svc.Spec.PublishNotReadyAddresses = true }

// asks sets the Service's ports.
func asks(ports ...corev1.ServicePort) func(*corev1.Service) {
	return func(svc *corev1.Service) { svc.Spec.Ports = ports }
}

func blue(e *v1.DanmEp) {
	e.Spec.NetworkName, e.Spec.NetworkUID, e.Spec.APIType, e.Spec.Interface.Name = "blue", "blue-uid", v1.KindDanmNet, "eth2"
}

func onBlue(svc *corev1.Service) { svc.Annotations["danm.io/network"] = "blue" }

// source returns the snapshot of a case. Both networks exist, and n1 is in zone z.
func source(t *testing.T, svc *corev1.Service, pods []corev1.Pod, eps []v1.DanmEp) *svcwatcher.Snapshot {
	t.Helper()
	j := svcwatcher.Classify(svc)
	if j.Class != svcwatcher.Managed {
		t.Fatalf("Classify: got %+v", j)
	}
	return &svcwatcher.Snapshot{
		Service: svc, Request: j.Request, Pods: pods, DanmEps: eps,
		Networks: networks(
			net(network.Ref{Kind: v1.KindClusterNetwork, Name: "red"}, "red-uid"),
			net(network.Ref{Kind: v1.KindDanmNet, Namespace: "ns", Name: "blue"}, "blue-uid"),
			net(network.Ref{Kind: v1.KindDanmNet, Namespace: "other", Name: "blue"}, "blue-uid"),
		),
		Zone: func(node string) string { return map[string]string{"n1": "z"}[node] },
	}
}

// net returns a network with large subnets.
func net(ref network.Ref, uid string) *network.Network {
	return &network.Network{
		Ref: ref, UID: uid, Type: v1.TypeMACVLAN,
		V4: &network.Subnet{CIDR: netip.MustParsePrefix("10.0.0.0/8")}, V6: &network.Subnet{CIDR: netip.MustParsePrefix("fd00::/16")},
	}
}

func networks(all ...*network.Network) map[network.Ref]*network.Network {
	byRef := map[network.Ref]*network.Network{}
	for _, n := range all {
		byRef[n.Ref] = n
	}
	return byRef
}

// endpoint returns the endpoint of a ready Pod on n1.
func endpoint(pod, address string, edit ...func(*discoveryv1.Endpoint)) discoveryv1.Endpoint {
	e := discoveryv1.Endpoint{
		Addresses:  []string{address},
		Conditions: state(true, true, false),
		TargetRef:  &corev1.ObjectReference{Kind: "Pod", Namespace: "ns", Name: pod, UID: types.UID("uid-" + pod)},
		NodeName:   new("n1"), Zone: new("z"),
	}
	for _, f := range edit {
		f(&e)
	}
	return e
}

func state(ready, serving, terminating bool) discoveryv1.EndpointConditions {
	return discoveryv1.EndpointConditions{Ready: &ready, Serving: &serving, Terminating: &terminating}
}

func in(ready, serving, terminating bool) func(*discoveryv1.Endpoint) {
	return func(e *discoveryv1.Endpoint) { e.Conditions = state(ready, serving, terminating) }
}

func port(name string, number int32, p corev1.Protocol) discoveryv1.EndpointPort {
	return discoveryv1.EndpointPort{Name: &name, Port: &number, Protocol: &p}
}

// four returns one group of IPv4 endpoints on the Service's one port.
func four(all ...discoveryv1.Endpoint) []svcwatcher.Group {
	return []svcwatcher.Group{{Family: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{port("http", 8080, corev1.ProtocolTCP)}, Endpoints: all}}
}

func six(all ...discoveryv1.Endpoint) []svcwatcher.Group {
	g := four(all...)
	g[0].Family = discoveryv1.AddressTypeIPv6
	return g
}

func TestDesired(t *testing.T) {
	t.Parallel()
	named := asks(corev1.ServicePort{Name: "http", Port: 80, TargetPort: intstr.FromString("web")})
	udp := port("http", 53, corev1.ProtocolUDP)
	udp.AppProtocol = new("kubernetes.io/h2c")
	one := []v1.DanmEp{ep("a", "10.0.0.1/24", "")}
	cases := map[string]struct {
		reason string
		svc    *corev1.Service
		pods   []corev1.Pod
		eps    []v1.DanmEp
		want   []svcwatcher.Group
	}{
		"Ready":    {reason: "Every field of an endpoint is set.", pods: []corev1.Pod{pod("a")}, eps: one, want: four(endpoint("a", "10.0.0.1"))},
		"Families": {reason: "A slice has one family.", pods: []corev1.Pod{pod("a")}, eps: []v1.DanmEp{ep("a", "10.0.0.1/24", "fd00::1/64")}, want: append(four(endpoint("a", "10.0.0.1")), six(endpoint("a", "fd00::1"))...)},
		"OneFamily": {reason: "The Service has one family.", svc: service(func(s *corev1.Service) { s.Spec.IPFamilies = s.Spec.IPFamilies[1:] }),
			pods: []corev1.Pod{pod("a")}, eps: []v1.DanmEp{ep("a", "10.0.0.1/24", "fd00::1/64")}, want: six(endpoint("a", "fd00::1"))},
		"NoFamilies":           {reason: "The Service is older than dual stack.", svc: service(func(s *corev1.Service) { s.Spec.IPFamilies = nil }), pods: []corev1.Pod{pod("a")}, eps: one, want: four(endpoint("a", "10.0.0.1"))},
		"Unready":              {reason: "An unready Pod has an endpoint that is not ready.", pods: []corev1.Pod{pod("a", unready)}, eps: one, want: four(endpoint("a", "10.0.0.1", in(false, false, false)))},
		"Starting":             {reason: "The Pod has no condition yet.", pods: []corev1.Pod{pod("a", func(p *corev1.Pod) { p.Status = corev1.PodStatus{} })}, eps: one, want: four(endpoint("a", "10.0.0.1", in(false, false, false)))},
		"Draining":             {reason: "A terminating Pod still serves, but is not ready (KEP-1672).", pods: []corev1.Pod{pod("a", terminating)}, eps: one, want: four(endpoint("a", "10.0.0.1", in(false, true, true)))},
		"Drained":              {reason: "A terminating Pod that is unready does not serve.", pods: []corev1.Pod{pod("a", terminating, unready)}, eps: one, want: four(endpoint("a", "10.0.0.1", in(false, false, true)))},
		"Published":            {reason: "The Service publishes unready Pods as ready; serving is the Pod's readiness.", svc: service(publish), pods: []corev1.Pod{pod("a", unready)}, eps: one, want: four(endpoint("a", "10.0.0.1", in(true, false, false)))},
		"PublishedTerminating": {reason: "The Service publishes terminating Pods as ready.", svc: service(publish), pods: []corev1.Pod{pod("a", terminating)}, eps: one, want: four(endpoint("a", "10.0.0.1", in(true, true, true)))},
		"Succeeded":            {reason: "A completed Pod does not answer.", svc: service(publish), pods: []corev1.Pod{pod("a", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded })}, eps: one, want: []svcwatcher.Group{}},
		"Evicted":              {reason: "A failed Pod does not answer.", pods: []corev1.Pod{pod("a", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })}, eps: one, want: []svcwatcher.Group{}},
		"Relabelled":           {reason: "The Pod's present labels count, not those of the DanmEp.", pods: []corev1.Pod{pod("a", func(p *corev1.Pod) { p.Labels["app"] = "other" })}, eps: []v1.DanmEp{ep("a", "10.0.0.1/24", "", func(e *v1.DanmEp) { e.Labels = map[string]string{"app": "web"} })}, want: []svcwatcher.Group{}},
		"FormerPod":            {reason: "A StatefulSet's new Pod has the old one's name.", pods: []corev1.Pod{pod("a", func(p *corev1.Pod) { p.UID = "new" })}, eps: one, want: []svcwatcher.Group{}},
		"NoPodUID":             {reason: "Without a UID the DanmEp may belong to an earlier Pod.", pods: []corev1.Pod{pod("a", func(p *corev1.Pod) { p.UID = "" })}, eps: []v1.DanmEp{ep("a", "10.0.0.1/24", "", func(e *v1.DanmEp) { e.Spec.PodUID = "" })}, want: []svcwatcher.Group{}},
		"NewSandbox":           {reason: "Of two DanmEps for one interface the newer one counts.", pods: []corev1.Pod{pod("a")}, eps: []v1.DanmEp{ep("a", "10.0.0.2/24", "", func(e *v1.DanmEp) { e.CreationTimestamp = metav1.Unix(9, 0) }), ep("a", "10.0.0.1/24", "", func(e *v1.DanmEp) { e.CreationTimestamp = metav1.Unix(8, 0) })}, want: four(endpoint("a", "10.0.0.2"))},
		"Forged":               {reason: "A DanmEp by another node than the Pod's is forged.", pods: []corev1.Pod{pod("a")}, eps: []v1.DanmEp{ep("a", "10.0.0.66/24", "", on("n2"))}, want: []svcwatcher.Group{}},
		"ForgedOver":           {reason: "A newer forged DanmEp must not replace a real one.", pods: []corev1.Pod{pod("a")}, eps: []v1.DanmEp{ep("a", "10.0.0.66/24", "", on("n2"), func(e *v1.DanmEp) { e.CreationTimestamp = metav1.Unix(9, 0) }), ep("a", "10.0.0.1/24", "", func(e *v1.DanmEp) { e.CreationTimestamp = metav1.Unix(8, 0) })}, want: four(endpoint("a", "10.0.0.1"))},
		"OtherNet":             {reason: "The DanmEp is on another network.", pods: []corev1.Pod{pod("a")}, eps: []v1.DanmEp{ep("a", "10.0.0.1/24", "", blue)}, want: []svcwatcher.Group{}},
		"FormerNet":            {reason: "The network was deleted and created again.", pods: []corev1.Pod{pod("a")}, eps: []v1.DanmEp{ep("a", "10.0.0.1/24", "", func(e *v1.DanmEp) { e.Spec.NetworkUID = "former" })}, want: []svcwatcher.Group{}},
		"DANMsEp":              {reason: "DANM writes no UID, and no apiType for DanmNets.", svc: service(onBlue), pods: []corev1.Pod{pod("a")}, eps: []v1.DanmEp{ep("a", "10.0.0.1/24", "", blue, func(e *v1.DanmEp) { e.Spec.NetworkUID, e.Spec.APIType = "", "" })}, want: four(endpoint("a", "10.0.0.1"))},
		"NoNet":                {reason: "The network does not exist, or not for this namespace.", svc: service(func(s *corev1.Service) { s.Annotations["danm.io/clusterNetwork"] = "green" }), pods: []corev1.Pod{pod("a")}, eps: []v1.DanmEp{ep("a", "10.0.0.1/24", "", func(e *v1.DanmEp) { e.Spec.NetworkName = "green" })}, want: []svcwatcher.Group{}},
		"OtherNamespace":       {reason: "Another namespace has a Pod and a network of the same names.", svc: service(onBlue), pods: []corev1.Pod{pod("a", func(p *corev1.Pod) { p.Namespace = "other" })}, eps: []v1.DanmEp{ep("a", "10.0.0.1/24", "", blue, func(e *v1.DanmEp) { e.Namespace = "other" })}, want: []svcwatcher.Group{}},
		"Union":                {reason: "The addresses of two networks are sorted.", svc: service(onBlue), pods: []corev1.Pod{pod("a"), pod("b")}, eps: []v1.DanmEp{ep("b", "10.0.0.2/24", ""), ep("a", "10.0.0.3/24", ""), ep("a", "10.9.0.1/24", "", blue)}, want: four(endpoint("b", "10.0.0.2"), endpoint("a", "10.0.0.3"), endpoint("a", "10.9.0.1"))},
		"Once":                 {reason: "An address is published once, for the Pod that serves.", svc: service(onBlue), pods: []corev1.Pod{pod("a", unready), pod("b")}, eps: []v1.DanmEp{ep("a", "10.0.0.1/24", ""), ep("b", "10.0.0.1/24", "", blue)}, want: four(endpoint("b", "10.0.0.1"))},
		"OnceByName":           {reason: "Of two serving Pods the first by name has the address.", svc: service(onBlue), pods: []corev1.Pod{pod("b"), pod("a")}, eps: []v1.DanmEp{ep("b", "10.0.0.1/24", ""), ep("a", "10.0.0.1/24", "", blue)}, want: four(endpoint("a", "10.0.0.1"))},
		"LinkLocal":            {reason: "The API server would reject the slice.", pods: []corev1.Pod{pod("a")}, eps: []v1.DanmEp{ep("a", "169.254.0.1/16", "fe80::1/64")}, want: []svcwatcher.Group{}},
		"NoAddress":            {reason: "The interface has no address.", pods: []corev1.Pod{pod("a")}, eps: []v1.DanmEp{ep("a", "", "rubbish")}, want: []svcwatcher.Group{}},
		"NoNode":               {reason: "Unknown fields are left out.", pods: []corev1.Pod{pod("a", func(p *corev1.Pod) { p.Spec.NodeName = "" })}, eps: []v1.DanmEp{ep("a", "10.0.0.1/24", "", on(""))}, want: four(endpoint("a", "10.0.0.1", func(e *discoveryv1.Endpoint) { e.NodeName, e.Zone = nil, nil }))},
		"NoZone":               {reason: "The Node has no zone.", pods: []corev1.Pod{pod("a", func(p *corev1.Pod) { p.Spec.NodeName = "n2" })}, eps: []v1.DanmEp{ep("a", "10.0.0.1/24", "", on("n2"))}, want: four(endpoint("a", "10.0.0.1", func(e *discoveryv1.Endpoint) { e.NodeName, e.Zone = new("n2"), nil }))},
		"Hostname":             {reason: "The Pod's subdomain is this Service.", pods: []corev1.Pod{pod("a", func(p *corev1.Pod) { p.Spec.Hostname, p.Spec.Subdomain = "h", "web" })}, eps: one, want: four(endpoint("a", "10.0.0.1", func(e *discoveryv1.Endpoint) { e.Hostname = new("h") }))},
		"OtherDomain":          {reason: "The Pod's subdomain is another Service.", pods: []corev1.Pod{pod("a", func(p *corev1.Pod) { p.Spec.Hostname, p.Spec.Subdomain = "h", "db" })}, eps: one, want: four(endpoint("a", "10.0.0.1"))},
		"NoPorts": {reason: "A headless Service needs no port.", svc: service(asks()), pods: []corev1.Pod{pod("a")}, eps: one,
			want: []svcwatcher.Group{{Family: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{}, Endpoints: []discoveryv1.Endpoint{endpoint("a", "10.0.0.1")}}}},
		"Protocols": {reason: "Each protocol has its port and appProtocol; the targetPort defaults to the port.", svc: service(asks(
			corev1.ServicePort{Name: "http", Port: 53, Protocol: corev1.ProtocolUDP, AppProtocol: new("kubernetes.io/h2c")}, corev1.ServicePort{Name: "s1", Port: 36412, Protocol: corev1.ProtocolSCTP}, corev1.ServicePort{Name: "t", Port: 1})),
			pods: []corev1.Pod{pod("a")}, eps: one,
			want: []svcwatcher.Group{{Family: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{endpoint("a", "10.0.0.1")},
				Ports: []discoveryv1.EndpointPort{udp, port("s1", 36412, corev1.ProtocolSCTP), port("t", 1, corev1.ProtocolTCP)}}}},
		"Named": {reason: "A named port may differ between Pods, which are then in separate slices; another protocol does not match.", svc: service(named),
			pods: []corev1.Pod{
				pod("a", ports(corev1.ContainerPort{Name: "web", ContainerPort: 8080, Protocol: corev1.ProtocolTCP})),
				pod("b", ports(corev1.ContainerPort{Name: "web", ContainerPort: 1, Protocol: corev1.ProtocolUDP}, corev1.ContainerPort{Name: "web", ContainerPort: 9090})),
			},
			eps: []v1.DanmEp{ep("a", "10.0.0.1/24", ""), ep("b", "10.0.0.2/24", "")},
			want: []svcwatcher.Group{
				four(endpoint("a", "10.0.0.1"))[0],
				{Family: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{port("http", 9090, corev1.ProtocolTCP)}, Endpoints: []discoveryv1.Endpoint{endpoint("b", "10.0.0.2")}},
			}},
		"Sidecar": {reason: "A sidecar's port counts, an init container's does not.", svc: service(named),
			pods: []corev1.Pod{pod("a", func(p *corev1.Pod) {
				p.Spec.InitContainers = []corev1.Container{
					{Ports: []corev1.ContainerPort{{Name: "web", ContainerPort: 1}}},
					{RestartPolicy: new(corev1.ContainerRestartPolicyAlways), Ports: []corev1.ContainerPort{{ContainerPort: 2}, {Name: "web", ContainerPort: 8080}}},
				}
			})}, eps: one, want: four(endpoint("a", "10.0.0.1"))},
		"Unnamed": {reason: "A Pod without the named port is published without ports, as in Kubernetes.", svc: service(named), pods: []corev1.Pod{pod("a")}, eps: one,
			want: []svcwatcher.Group{{Family: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{}, Endpoints: []discoveryv1.Endpoint{endpoint("a", "10.0.0.1")}}}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if tc.svc == nil {
				tc.svc = service()
			}
			if diff := cmp.Diff(tc.want, svcwatcher.Desired(source(t, tc.svc, tc.pods, tc.eps)).Groups); diff != "" {
				t.Errorf("%s\nDesired: -want +got\n%s", tc.reason, diff)
			}
		})
	}
}
