// SPDX-License-Identifier: Apache-2.0

package svcwatcher_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/patchbay-cni/patchbay/svcwatcher"
)

// first returns the name of a Service's first slice.
const first = "web-"

// slice returns a slice of ours with these endpoints.
func slice(name string, groups []svcwatcher.Group, edit ...func(*discoveryv1.EndpointSlice)) discoveryv1.EndpointSlice {
	s := discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: name, ResourceVersion: "7",
			Labels: map[string]string{
				discoveryv1.LabelServiceName: "web", discoveryv1.LabelManagedBy: "svcwatcher.danm.io", corev1.IsHeadlessService: "",
			},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Service", Name: "web", UID: "svc", Controller: new(true)}},
		},
		AddressType: groups[0].Family, Ports: groups[0].Ports, Endpoints: groups[0].Endpoints,
	}
	for _, e := range edit {
		e(&s)
	}
	return s
}

// many returns endpoints from 10.0.0.<from> on.
func many(from, n int) []discoveryv1.Endpoint {
	var all []discoveryv1.Endpoint
	for i := range n {
		all = append(all, endpoint(fmt.Sprint("p", from+i), fmt.Sprintf("10.0.0.%03d", from+i)))
	}
	return all
}

func TestPlan(t *testing.T) {
	t.Parallel()
	a, b := endpoint("a", "10.0.0.1"), endpoint("b", "10.0.0.2")
	other := four(b)
	other[0].Ports = []discoveryv1.EndpointPort{port("http", 9090, corev1.ProtocolTCP)}
	former := func(s *discoveryv1.EndpointSlice) { s.OwnerReferences[0].UID = "former" }
	cases := map[string]struct {
		reason   string
		svc      *corev1.Service
		groups   []svcwatcher.Group
		existing []discoveryv1.EndpointSlice
		want     []string // verb, name, number of endpoints
	}{
		"Nothing":  {reason: "Without endpoints there is no slice."},
		"New":      {reason: "Each family has a slice of its own.", groups: append(four(a, b), six(endpoint("a", "fd00::1"))...), want: []string{"create 1 IPv6", "create 2 IPv4"}},
		"Same":     {reason: "Nothing changed.", groups: four(a, b), existing: []discoveryv1.EndpointSlice{slice("x", four(b, a))}},
		"More":     {reason: "A new endpoint goes into the existing slice.", groups: four(a, b), existing: []discoveryv1.EndpointSlice{slice("x", four(a))}, want: []string{"update x 2 IPv4"}},
		"Less":     {reason: "An endpoint leaves its slice.", groups: four(a), existing: []discoveryv1.EndpointSlice{slice("x", four(a, b))}, want: []string{"update x 1 IPv4"}},
		"None":     {reason: "An empty slice is deleted.", existing: []discoveryv1.EndpointSlice{slice("x", four(a, b))}, want: []string{"delete x"}},
		"Changed":  {reason: "Only the slice of the changed endpoint is written.", groups: four(a, b), existing: []discoveryv1.EndpointSlice{slice("x", four(endpoint("a", "10.0.0.1", in(false, false, false)))), slice("y", four(b))}, want: []string{"update x 1 IPv4"}},
		"Twice":    {reason: "An address must be in one slice only.", groups: four(a), existing: []discoveryv1.EndpointSlice{slice("y", four(a)), slice("x", four(a))}, want: []string{"delete y"}},
		"Labels":   {reason: "The Service's labels are copied.", svc: service(func(s *corev1.Service) { s.Labels = map[string]string{"team": "t"} }), groups: four(a), existing: []discoveryv1.EndpointSlice{slice("x", four(a))}, want: []string{"update x 1 IPv4"}},
		"Ports":    {reason: "A slice of other ports is reused, so that the endpoint is never without a slice.", groups: other, existing: []discoveryv1.EndpointSlice{slice("x", four(b))}, want: []string{"update x 1 IPv4"}},
		"Family":   {reason: "The family of a slice is immutable.", groups: six(endpoint("a", "fd00::1")), existing: []discoveryv1.EndpointSlice{slice("x", four(a))}, want: []string{"create 1 IPv6", "delete x"}},
		"Former":   {reason: "The slices of an earlier Service of that name are deleted.", groups: four(a), existing: []discoveryv1.EndpointSlice{slice("x", four(a), former)}, want: []string{"create 1 IPv4", "delete x"}},
		"Ending":   {reason: "A slice in deletion is not written.", groups: four(a), existing: []discoveryv1.EndpointSlice{slice("x", four(a), func(s *discoveryv1.EndpointSlice) { s.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} })}, want: []string{"create 1 IPv4"}},
		"Strange":  {reason: "Another writer added an endpoint with several addresses.", groups: four(a), existing: []discoveryv1.EndpointSlice{slice("x", four(a, endpoint("c", "10.0.0.9", func(e *discoveryv1.Endpoint) { e.Addresses = append(e.Addresses, "10.0.0.8") })))}, want: []string{"update x 1 IPv4"}},
		"Full":     {reason: "A slice has at most a hundred endpoints.", groups: four(many(1, 250)...), want: []string{"create 100 IPv4", "create 100 IPv4", "create 50 IPv4"}},
		"Overflow": {reason: "One more endpoint than fits needs a new slice.", groups: four(many(1, 101)...), existing: []discoveryv1.EndpointSlice{slice("x", four(many(1, 100)...))}, want: []string{"create 1 IPv4"}},
		"Holes":    {reason: "The fullest slice with room for all new endpoints is used.", groups: four(many(1, 162)...), existing: []discoveryv1.EndpointSlice{slice("x", four(many(1, 60)...)), slice("y", four(many(61, 90)...)), slice("z", four(many(151, 2)...))}, want: []string{"update y 100 IPv4"}},
		"Written":  {reason: "A slice that is written anyway is filled first.", groups: four(append(many(2, 99), many(101, 30)...)...), existing: []discoveryv1.EndpointSlice{slice("x", four(many(1, 100)...)), slice("y", four(many(101, 20)...))}, want: []string{"update x 100 IPv4", "update y 29 IPv4"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if tc.svc == nil {
				tc.svc = service()
			}
			before := make([]discoveryv1.EndpointSlice, len(tc.existing))
			for i := range tc.existing {
				tc.existing[i].DeepCopyInto(&before[i])
			}
			c := svcwatcher.Plan(tc.svc, tc.groups, tc.existing)
			if diff := cmp.Diff(tc.want, describe(c)); diff != "" {
				t.Errorf("%s\nPlan: -want +got\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(before, append([]discoveryv1.EndpointSlice{}, tc.existing...)); diff != "" {
				t.Errorf("Plan modified the cached slices: -before +after\n%s", diff)
			}
		})
	}
}

// describe returns the changes in the order create, update, delete, each sorted.
func describe(c svcwatcher.Changes) []string {
	var all []string
	for _, verb := range []struct {
		name  string
		what  []discoveryv1.EndpointSlice
		print func(discoveryv1.EndpointSlice) string
	}{
		{"create", c.Create, func(s discoveryv1.EndpointSlice) string { return fmt.Sprintf("%d %s", len(s.Endpoints), s.AddressType) }},
		{"update", c.Update, func(s discoveryv1.EndpointSlice) string {
			return fmt.Sprintf("%s %d %s", s.Name, len(s.Endpoints), s.AddressType)
		}},
		{"delete", c.Delete, func(s discoveryv1.EndpointSlice) string { return s.Name }},
	} {
		var lines []string
		for _, s := range verb.what {
			lines = append(lines, verb.name+" "+verb.print(s))
		}
		slices.Sort(lines)
		all = append(all, lines...)
	}
	return all
}

// The test checks every field of a new slice.
func TestNewSlice(t *testing.T) {
	t.Parallel()
	svc := service(func(s *corev1.Service) {
		s.Labels = map[string]string{"team": "t", discoveryv1.LabelManagedBy: "somebody"}
	})
	c := svcwatcher.Plan(svc, four(endpoint("a", "10.0.0.1")), nil)
	again := svcwatcher.Plan(svc, four(endpoint("a", "10.0.0.1")), nil)
	if len(c.Create) != 1 {
		t.Fatalf("Plan: got %+v", c)
	}
	got := c.Create[0]
	if got.Name != again.Create[0].Name || got.Name[:len(first)] != first {
		t.Errorf("name: got %s, then %s; want the same, because the cache may be behind", got.Name, again.Create[0].Name)
	}
	want := slice(got.Name, four(endpoint("a", "10.0.0.1")), func(s *discoveryv1.EndpointSlice) { s.ResourceVersion, s.Labels["team"] = "", "t" })
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("slice: -want +got\n%s", diff)
	}
}
