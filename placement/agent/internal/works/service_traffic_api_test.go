// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package works_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/agent/internal/endpoints"
)

// serviceWork creates the Work of the Service web with traffic.
func (b *testAgent) serviceWork(t *testing.T, remote ...string) *v1alpha1.Work {
	t.Helper()
	return b.work(t, "web", func(s *v1alpha1.WorkSpec) {
		s.Source = v1alpha1.ObjectReference{Version: "v1", Kind: "Service", Resource: "services", Namespace: "default", Name: "web", UID: "source-1"}
		s.Traffic = &v1alpha1.WorkTraffic{Subnets: []string{"10.77.0.0/16"}, Endpoints: remoteEndpoints(remote...)}
	}, manifest(t, "services", `{apiVersion: v1, kind: Service, metadata: {name: web, namespace: default}, spec: {clusterIP: None, ports: [{name: http, port: 80}]}}`))
}

// remoteEndpoints are endpoints in west.
func remoteEndpoints(addresses ...string) []v1alpha1.TrafficEndpoints {
	if len(addresses) == 0 {
		return nil
	}
	return []v1alpha1.TrafficEndpoints{{
		Cluster: "west", Work: "w", Addresses: addresses, Ports: []v1alpha1.TrafficPort{{Name: "http", Protocol: "TCP", Port: new(int32(80))}},
	}}
}

// remoteAddresses returns the addresses in the agent's EndpointSlices of a Service.
func (b *testAgent) remoteAddresses(ctx context.Context, service string) (all []string, err error) {
	var list discoveryv1.EndpointSliceList
	err = b.List(ctx, &list, client.InNamespace("default"), client.MatchingLabels{discoveryv1.LabelServiceName: service, discoveryv1.LabelManagedBy: endpoints.ManagedBy})
	for _, slice := range list.Items {
		for _, e := range slice.Endpoints {
			all = append(all, e.Addresses...)
		}
	}
	slices.Sort(all)
	return all, err
}

// awaitRemote waits until the agent has acknowledged a Work, and expects its EndpointSlices to have these addresses.
func (b *testAgent) awaitRemote(t *testing.T, w *v1alpha1.Work, want ...string) {
	t.Helper()
	b.awaitWork(t, w, "the agent acknowledges the endpoints", func(s v1alpha1.WorkStatus) bool {
		return s.Traffic != nil && s.Traffic.Revision == w.Spec.Revision && s.Traffic.Message == ""
	})
	got, err := b.remoteAddresses(t.Context(), w.Spec.Source.Name)
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("EndpointSlices of %s: got %v (%v), want %v", w.Spec.Source.Name, got, err, want)
	}
}

// The agent acknowledges a revision only when the cluster's EndpointSlices have its endpoints: after a change, after its
// own restart, after another client has changed them, and after the Service was deleted and created again.
func TestTrafficIsAcknowledged(t *testing.T) {
	t.Parallel()
	b := start(t)
	w := b.serviceWork(t, "10.77.2.1", "10.77.2.2", "10.99.0.1") // the last one is outside
	b.awaitRemote(t, w, "10.77.2.1", "10.77.2.2")
	b.change(t, w, func(s *v1alpha1.WorkSpec) {
		s.Traffic.Endpoints = remoteEndpoints("10.77.2.2")
		s.Traffic.Withdrawn = []v1alpha1.WithdrawnTraffic{{Cluster: "west", Work: "w", Time: metav1.NowMicro()}}
	})
	b.awaitRemote(t, w, "10.77.2.2")

	b.stop()
	b.change(t, w, func(s *v1alpha1.WorkSpec) { s.Traffic.Endpoints = remoteEndpoints("10.77.2.3") })
	b.run(t)
	b.awaitRemote(t, w, "10.77.2.3")

	var list discoveryv1.EndpointSliceList
	if err := b.List(t.Context(), &list, client.InNamespace("default"), client.MatchingLabels{discoveryv1.LabelManagedBy: endpoints.ManagedBy}); err != nil || len(list.Items) != 1 {
		t.Fatalf("EndpointSlices: %v, %v", list.Items, err)
	}
	list.Items[0].Endpoints = nil
	if err := b.Update(t.Context(), &list.Items[0]); err != nil {
		t.Fatal(err)
	}
	repaired := func() error {
		got, err := b.remoteAddresses(t.Context(), "web")
		if err == nil && !slices.Equal(got, []string{"10.77.2.3"}) {
			err = fmt.Errorf("got %v", got)
		}
		return err
	}
	eventually(t, "the agent repairs its EndpointSlice", repaired)

	if err := b.Delete(t.Context(), &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the new Service has an EndpointSlice of its own", func() error {
		service := &corev1.Service{}
		if err := b.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "web"}, service); err != nil {
			return err
		}
		if err := b.List(t.Context(), &list, client.InNamespace("default"), client.MatchingLabels{discoveryv1.LabelManagedBy: endpoints.ManagedBy}); err != nil {
			return err
		}
		if len(list.Items) != 1 || list.Items[0].OwnerReferences[0].UID != service.UID {
			return fmt.Errorf("got %v", list.Items)
		}
		return repaired()
	})

	b.change(t, w, func(s *v1alpha1.WorkSpec) { s.Traffic = nil })
	b.awaitWork(t, w, "the network is stretched no more", func(s v1alpha1.WorkStatus) bool { return s.Revision == w.Spec.Revision && s.Traffic == nil })
	if got, err := b.remoteAddresses(t.Context(), "web"); err != nil || len(got) > 0 {
		t.Errorf("EndpointSlices of a network that is not stretched: %v, %v", got, err)
	}
}

// A Service that the hub releases keeps no endpoints of other clusters: no program would update them.
func TestReleasedServiceKeepsNoRemoteEndpoints(t *testing.T) {
	t.Parallel()
	b := start(t)
	w := b.serviceWork(t, "10.77.2.1")
	b.awaitRemote(t, w, "10.77.2.1")
	b.change(t, w, func(s *v1alpha1.WorkSpec) {
		s.Removal = &v1alpha1.Removal{Policy: v1alpha1.OnDeleteOrphan, SourceUID: s.Source.UID}
	})
	eventually(t, "the endpoints are gone", func() error {
		got, err := b.remoteAddresses(t.Context(), "web")
		if err == nil && len(got) > 0 {
			err = fmt.Errorf("got %v", got)
		}
		return err
	})
	if err := b.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "web"}, &corev1.Service{}); err != nil {
		t.Error(err)
	}
}

// The agent reports the ready endpoints of Pods that the hub has placed, and no others.
func TestTrafficReportsPlacedPods(t *testing.T) {
	t.Parallel()
	b := start(t)
	const pod = `{apiVersion: v1, kind: Pod, metadata: {name: placed, namespace: default}, spec: {containers: [{name: c, image: c}]}}`
	b.work(t, "placed", func(s *v1alpha1.WorkSpec) {
		s.Source = v1alpha1.ObjectReference{Version: "v1", Kind: "Pod", Resource: "pods", Namespace: "default", Name: "placed", UID: "source-2"}
	}, manifest(t, "pods", pod))
	local := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "local"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "c"}}}}
	if err := b.Create(t.Context(), local); err != nil {
		t.Fatal(err)
	}
	placed, service := &corev1.Pod{}, &corev1.Service{}
	w := b.serviceWork(t)
	eventually(t, "Pod and Service exist", func() error {
		if err := b.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "placed"}, placed); err != nil {
			return err
		}
		return b.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "web"}, service)
	})
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "web-1", Labels: map[string]string{discoveryv1.LabelServiceName: "web", discoveryv1.LabelManagedBy: endpoints.SourceManagedBy},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Service", Name: "web", UID: service.UID}},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: new("http"), Port: new(int32(80)), Protocol: new(corev1.ProtocolTCP)}},
	}
	for address, e := range map[string]struct {
		pod   *corev1.Pod
		ready bool
	}{"10.77.1.1": {placed, true}, "10.77.1.2": {placed, false}, "10.77.1.3": {local, true}, "10.99.0.1": {placed, true}} {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{address}, Conditions: discoveryv1.EndpointConditions{Ready: &e.ready},
			TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: "default", Name: e.pod.Name, UID: e.pod.UID},
		})
	}
	if err := b.Create(t.Context(), slice); err != nil {
		t.Fatal(err)
	}
	want := v1alpha1.TrafficEndpoints{Work: "placed", Addresses: []string{"10.77.1.1"}, Ports: []v1alpha1.TrafficPort{{Name: "http", Protocol: "TCP", Port: new(int32(80))}}}
	reports := func(want ...v1alpha1.TrafficEndpoints) func(v1alpha1.WorkStatus) bool {
		return func(s v1alpha1.WorkStatus) bool {
			return s.Traffic != nil && fmt.Sprint(asText(t, s.Traffic.Endpoints)) == asText(t, want)
		}
	}
	b.awaitWork(t, w, "the agent reports one endpoint", reports(want))
	slice.Endpoints = nil
	if err := b.Update(t.Context(), slice); err != nil {
		t.Fatal(err)
	}
	b.awaitWork(t, w, "the agent reports no endpoint", reports())
}

// An EndpointSlice of another owner, with the very name, stays as it is: the agent acknowledges nothing, and reports it.
func TestTrafficLeavesSlicesOfOthers(t *testing.T) {
	t.Parallel()
	b := start(t)
	w := b.serviceWork(t)
	b.awaitRemote(t, w)
	service := &corev1.Service{}
	if err := b.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "web"}, service); err != nil {
		t.Fatal(err)
	}
	desired := endpoints.Desired(endpoints.Service{Namespace: "default", Name: "web", UID: service.UID}, remoteEndpoints("10.77.2.1"), []string{"10.77.0.0/16"})
	foreign := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "default", Name: desired[0].Name, Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
		AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"192.0.2.1"}}},
	}
	if err := b.Create(t.Context(), foreign); err != nil {
		t.Fatal(err)
	}
	b.change(t, w, func(s *v1alpha1.WorkSpec) { s.Traffic.Endpoints = remoteEndpoints("10.77.2.1") })
	s := b.awaitWork(t, w, "the agent reports the EndpointSlice", func(s v1alpha1.WorkStatus) bool {
		return s.Traffic != nil && strings.Contains(s.Traffic.Message, foreign.Name)
	})
	if s.Traffic.Revision >= w.Spec.Revision {
		t.Errorf("the agent has acknowledged revision %d", s.Traffic.Revision)
	}
	if err := b.Get(t.Context(), client.ObjectKeyFromObject(foreign), foreign); err != nil || foreign.Endpoints[0].Addresses[0] != "192.0.2.1" {
		t.Errorf("the EndpointSlice of another owner: %+v, %v", foreign, err)
	}
	if err := b.Delete(t.Context(), foreign); err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	b.awaitRemote(t, w, "10.77.2.1")
}

// asText returns endpoints as text to compare.
func asText(t *testing.T, all []v1alpha1.TrafficEndpoints) string {
	t.Helper()
	var text []string
	for _, e := range all {
		for _, p := range e.Ports {
			text = append(text, fmt.Sprint(e.Cluster, e.Work, e.Addresses, p.Name, p.Protocol, *p.Port))
		}
	}
	return strings.Join(text, "; ")
}
