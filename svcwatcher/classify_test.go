// SPDX-License-Identifier: Apache-2.0

package svcwatcher_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/patchbay-cni/patchbay/svcwatcher"
)

func TestJudge(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason  string
		edit    func(*corev1.Service)
		want    svcwatcher.Class
		event   string
		message []string
	}{
		"Served": {reason: "The Service is headless and has no selector.", edit: func(*corev1.Service) {}, want: svcwatcher.Managed},
		"Legacy": {reason: "The annotations are those of DANM 4.3.", want: svcwatcher.Managed, edit: func(s *corev1.Service) {
			s.Annotations = map[string]string{"danm.k8s.io/selector": `{"app":"web"}`, "danm.k8s.io/network": "blue"}
		}},
		"Plain":    {reason: "The Service has no annotation of ours.", edit: func(s *corev1.Service) { s.Annotations = nil }, want: svcwatcher.Unmanaged},
		"Deleting": {reason: "The Service is being deleted.", edit: func(s *corev1.Service) { s.DeletionTimestamp = &metav1.Time{} }, want: svcwatcher.Unmanaged},
		"Selector": {reason: "Kubernetes makes the endpoints of a Service with a selector.", edit: func(s *corev1.Service) { s.Spec.Selector = map[string]string{"a": "b"} }, want: svcwatcher.Unsupported, event: "UnsupportedService", message: []string{"spec.selector", "danm.io/selector"}},
		"Alias":    {reason: "An alias has no endpoints.", edit: func(s *corev1.Service) { s.Spec.Type, s.Spec.ClusterIP = corev1.ServiceTypeExternalName, "" }, want: svcwatcher.Unsupported, event: "UnsupportedService", message: []string{"ExternalName", "clusterIP None"}},
		"ClusterIP": {reason: "kube-proxy cannot reach the Pods of its own node.", edit: func(s *corev1.Service) { s.Spec.ClusterIP = "10.96.0.9" }, want: svcwatcher.Unsupported, event: "UnsupportedService",
			message: []string{"10.96.0.9", "headless", "MACVLAN"}},
		"NodePort":     {reason: "kube-proxy cannot reach the Pods of its own node.", edit: func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeNodePort }, want: svcwatcher.Unsupported, event: "UnsupportedService", message: []string{"NodePort"}},
		"LoadBalancer": {reason: "kube-proxy cannot reach the Pods of its own node.", edit: func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeLoadBalancer }, want: svcwatcher.Unsupported, event: "UnsupportedService", message: []string{"LoadBalancer"}},
		"Invalid":      {reason: "The selector must be JSON.", edit: func(s *corev1.Service) { s.Annotations["danm.io/selector"] = "app=web" }, want: svcwatcher.Invalid, event: "InvalidAnnotations", message: []string{"keeps the endpoints", "danm.io/selector", "app=web"}},
		"Unsupported":  {reason: "An unsupported Service with an invalid annotation keeps no endpoints.", edit: func(s *corev1.Service) { s.Annotations["danm.io/selector"] = "x"; s.Spec.ClusterIP = "10.96.0.9" }, want: svcwatcher.Unsupported, event: "UnsupportedService"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := svcwatcher.Classify(service(tc.edit))
			if got.Class != tc.want || got.Reason != tc.event || (got.Request != nil) != (tc.want == svcwatcher.Managed) {
				t.Errorf("%s\nClassify: got %+v, want class %d and Event %q", tc.reason, got, tc.want, tc.event)
			}
			for _, part := range tc.message {
				if !strings.Contains(got.Message, part) {
					t.Errorf("%s\nmessage %q, want %q in it", tc.reason, got.Message, part)
				}
			}
		})
	}
}

func TestWantsLegacy(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason, key, value string
		want               bool
	}{
		"Requested": {reason: "The annotation requests Endpoints.", key: "danm.io/endpoints", value: "true", want: true},
		"Legacy":    {reason: "DANM's prefix works too.", key: "danm.k8s.io/endpoints", value: "true", want: true},
		"False":     {reason: "Only the value true requests Endpoints.", key: "danm.io/endpoints", value: "false"},
		"Other":     {reason: "Another annotation requests nothing.", key: "x", value: "true"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			svc := service(func(s *corev1.Service) { s.Annotations[tc.key] = tc.value })
			if got := svcwatcher.WantsLegacyEndpoints(svc); got != tc.want {
				t.Errorf("%s: got %t, want %t", tc.reason, got, tc.want)
			}
		})
	}
}

// A Service whose annotations became invalid keeps its endpoints while they are true.
func TestKeep(t *testing.T) {
	t.Parallel()
	had := []discoveryv1.EndpointSlice{slice("x", four(endpoint("a", "10.0.0.1"), endpoint("b", "10.0.0.2"))), slice("y", six(endpoint("a", "fd00::1")))}
	former := []discoveryv1.EndpointSlice{slice("x", four(endpoint("a", "10.0.0.1")), func(s *discoveryv1.EndpointSlice) { s.OwnerReferences[0].UID = "former" })}
	both := []corev1.Pod{pod("a"), pod("b"), pod("c")}
	eps := ep("a", "10.0.0.1/24", "fd00::1/64")
	second, third := ep("b", "10.0.0.2/24", ""), ep("c", "10.0.0.3/24", "")
	cases := map[string]struct {
		reason   string
		pods     []corev1.Pod
		eps      []string
		existing []discoveryv1.EndpointSlice
		want     []svcwatcher.Group
	}{
		"All":     {reason: "Nothing changed; the third address was never published.", pods: both, want: append(four(endpoint("a", "10.0.0.1"), endpoint("b", "10.0.0.2")), six(endpoint("a", "fd00::1"))...), existing: had},
		"Unready": {reason: "The conditions follow the Pods.", pods: []corev1.Pod{pod("a", unready)}, want: append(four(endpoint("a", "10.0.0.1", in(false, false, false))), six(endpoint("a", "fd00::1", in(false, false, false)))...), existing: had},
		"Gone":    {reason: "One Pod is gone, and another one terminated.", pods: []corev1.Pod{pod("b", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })}, want: []svcwatcher.Group{}, existing: had},
		"NewPod":  {reason: "A new Pod has the same name.", pods: []corev1.Pod{pod("a", func(p *corev1.Pod) { p.UID = "new" })}, want: []svcwatcher.Group{}, existing: had},
		"Former":  {reason: "The slice belongs to an earlier Service of that name.", pods: both, want: []svcwatcher.Group{}, existing: former},
		"NoPod":   {reason: "The endpoint names no Pod.", pods: both, want: []svcwatcher.Group{}, existing: []discoveryv1.EndpointSlice{slice("x", four(endpoint("a", "10.0.0.1", func(e *discoveryv1.Endpoint) { e.TargetRef = nil })))}},
		"Lost":    {reason: "The Pod has another address now.", pods: both, want: []svcwatcher.Group{}, existing: []discoveryv1.EndpointSlice{slice("x", four(endpoint("a", "10.0.0.7")))}},
		"Several": {reason: "The endpoint has not exactly one address.", pods: both, want: []svcwatcher.Group{}, existing: []discoveryv1.EndpointSlice{slice("x", four(endpoint("a", "10.0.0.1", func(e *discoveryv1.Endpoint) { e.Addresses = nil })))}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := source(t, service(), tc.pods, nil)
			s.DanmEps, s.Request, s.Networks = append(s.DanmEps, eps, second, third), nil, nil
			if diff := cmp.Diff(tc.want, svcwatcher.Retained(s, tc.existing)); diff != "" {
				t.Errorf("%s\nRetained: -want +got\n%s", tc.reason, diff)
			}
		})
	}
}

func TestLegacy(t *testing.T) {
	t.Parallel()
	groups := append(four(endpoint("a", "10.0.0.1"), endpoint("b", "10.0.0.2", in(false, false, false)), endpoint("c", "10.0.0.3", in(false, true, true))), six(endpoint("d", "fd00::1", in(false, true, true)))...)
	got := svcwatcher.LegacyEndpoints(service(), groups)
	address := func(pod, ip string) corev1.EndpointAddress {
		return corev1.EndpointAddress{IP: ip, NodeName: new("n1"), TargetRef: endpoint(pod, ip).TargetRef}
	}
	want := &corev1.Endpoints{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: "web",
			Labels:          map[string]string{"endpointslice.kubernetes.io/managed-by": "svcwatcher.danm.io", "endpointslice.kubernetes.io/skip-mirror": "true", "service.kubernetes.io/headless": ""},
			OwnerReferences: slice("x", four()).OwnerReferences,
		},
		Subsets: []corev1.EndpointSubset{{
			Addresses: []corev1.EndpointAddress{address("a", "10.0.0.1")}, NotReadyAddresses: []corev1.EndpointAddress{address("b", "10.0.0.2")},
			Ports: []corev1.EndpointPort{{Name: "http", Port: 8080, Protocol: corev1.ProtocolTCP}},
		}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("LegacyEndpoints: -want +got\n%s", diff)
	}
	published := svcwatcher.LegacyEndpoints(service(publish), six(endpoint("d", "fd00::1", in(true, true, true))))
	if len(published.Subsets) != 1 || len(published.Subsets[0].Addresses) != 1 {
		t.Errorf("a Service that publishes every Pod: got %+v", published.Subsets)
	}
}

// Endpoints have a limit, and an annotation when they are truncated.
func TestLegacyLimit(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1000, 1001} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			var all []discoveryv1.Endpoint
			for i := range n {
				all = append(all, endpoint("p", fmt.Sprintf("10.0.%d.%d", i/250, i%250+1)))
			}
			got := svcwatcher.LegacyEndpoints(service(), four(all...))
			_, truncated := got.Annotations[corev1.EndpointsOverCapacity]
			if len(got.Subsets[0].Addresses) != 1000 || truncated != (n > 1000) {
				t.Errorf("got %d addresses, truncated: %t", len(got.Subsets[0].Addresses), truncated)
			}
		})
	}
}
