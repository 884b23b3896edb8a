// SPDX-License-Identifier: Apache-2.0

// Package endpoints reports a Service's ready endpoints in the cluster, and writes EndpointSlices with those of other
// clusters.
package endpoints

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	discoveryclient "k8s.io/client-go/kubernetes/typed/discovery/v1"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/internal/traffic"
)

const (
	// ManagedBy is the value of the label endpointslice.kubernetes.io/managed-by on the agent's EndpointSlices.
	ManagedBy = "patchbay-agent.placement.patchbay.io"
	// SourceManagedBy is its value on those of svcwatcher, which have the endpoints of this cluster.
	SourceManagedBy = "svcwatcher.danm.io"
	// maxEndpoints is how many endpoints an EndpointSlice has at most: Kubernetes' default.
	maxEndpoints = 100
	// maxPorts is how many ports a report has.
	maxPorts = 16
)

// Selector selects the EndpointSlices that a Service's traffic depends on.
const Selector = discoveryv1.LabelManagedBy + " in (" + ManagedBy + "," + SourceManagedBy + ")"

// Resource of EndpointSlices.
func Resource() schema.GroupVersionResource {
	return discoveryv1.SchemeGroupVersion.WithResource("endpointslices")
}

// Service identifies a Service in the cluster. UID is empty when there is none.
type Service struct {
	Namespace, Name string
	UID             types.UID
}

// List reads the EndpointSlices of a Service: those with the endpoints of this cluster, and the agent's own.
func List(ctx context.Context, c discoveryclient.EndpointSlicesGetter, s Service) (local, own []discoveryv1.EndpointSlice, err error) {
	list, err := c.EndpointSlices(s.Namespace).List(ctx, metav1.ListOptions{
		LabelSelector: Selector + "," + labels.Set{discoveryv1.LabelServiceName: s.Name}.String(),
	})
	if err != nil {
		return nil, nil, fmt.Errorf("list EndpointSlices of Service %s/%s: %w", s.Namespace, s.Name, err)
	}
	for _, slice := range list.Items {
		switch {
		case slice.Labels[discoveryv1.LabelManagedBy] == ManagedBy:
			own = append(own, slice)
		case ownedBy(slice.OwnerReferences, s.UID):
			local = append(local, slice)
		}
	}
	return local, own, nil
}

func ownedBy(owners []metav1.OwnerReference, uid types.UID) bool {
	return slices.ContainsFunc(owners, func(o metav1.OwnerReference) bool { return o.UID == uid && uid != "" })
}

// Report returns the ready endpoints of the cluster in these subnets, by workload and ports, and whether there are more
// than a report has. WorkOf returns the name of the Work of the object that runs a Pod; "" for a Pod that the hub has
// not placed, which the report leaves out.
func Report(local []discoveryv1.EndpointSlice, subnets []string, workOf func(*corev1.ObjectReference) string) (report []v1alpha1.TrafficEndpoints, truncated bool) {
	prefixes := parsePrefixes(subnets)
	groups := map[string]*v1alpha1.TrafficEndpoints{}
	for i := range local {
		ports := portsOf(&local[i])
		if len(local[i].Ports) > maxPorts {
			truncated = true
			continue // a part of the ports would send traffic to the wrong ones
		}
		for _, e := range local[i].Endpoints {
			ready := e.Conditions.Ready != nil && *e.Conditions.Ready
			if !ready || e.TargetRef == nil || len(e.Addresses) != 1 || !isIn(prefixes, e.Addresses[0]) {
				continue
			}
			work := workOf(e.TargetRef)
			if work == "" {
				continue
			}
			key := fmt.Sprintf("%s %s %s", work, local[i].AddressType, portsKey(ports))
			if groups[key] == nil {
				groups[key] = &v1alpha1.TrafficEndpoints{Work: work, Ports: ports}
			}
			groups[key].Addresses = append(groups[key].Addresses, e.Addresses[0])
		}
	}
	for _, key := range slices.Sorted(maps.Keys(groups)) {
		slices.Sort(groups[key].Addresses)
		groups[key].Addresses = slices.Compact(groups[key].Addresses)
		report = append(report, *groups[key])
	}
	report, more := traffic.Bound(report)
	return report, truncated || more
}

func parsePrefixes(subnets []string) (prefixes []netip.Prefix) {
	for _, text := range subnets {
		if p, err := netip.ParsePrefix(text); err == nil {
			prefixes = append(prefixes, p)
		}
	}
	return prefixes
}

func isIn(prefixes []netip.Prefix, address string) bool {
	a, err := netip.ParseAddr(address)
	return err == nil && slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(a) })
}

func portsOf(slice *discoveryv1.EndpointSlice) (ports []v1alpha1.TrafficPort) {
	for _, p := range slice.Ports {
		port := v1alpha1.TrafficPort{Port: p.Port}
		if p.Name != nil {
			port.Name = *p.Name
		}
		if p.Protocol != nil {
			port.Protocol = string(*p.Protocol)
		}
		if p.AppProtocol != nil {
			port.AppProtocol = *p.AppProtocol
		}
		ports = append(ports, port)
	}
	return ports
}

// portsKey identifies ports.
func portsKey(ports []v1alpha1.TrafficPort) (key string) {
	for _, p := range ports {
		number := "*"
		if p.Port != nil {
			number = fmt.Sprint(*p.Port)
		}
		key += fmt.Sprintf("%q/%s/%s/%q ", p.Name, number, p.Protocol, p.AppProtocol)
	}
	return key
}

// Desired returns the EndpointSlices that a Service is to have of other clusters. Their names depend on the Service's
// UID, the ports and a number only: a slice that a stale read does not show is not created twice.
func Desired(s Service, remote []v1alpha1.TrafficEndpoints, subnets []string) (desired []discoveryv1.EndpointSlice) {
	prefixes := parsePrefixes(subnets)
	type group struct {
		family    discoveryv1.AddressType
		ports     []v1alpha1.TrafficPort
		addresses []string
	}
	groups := map[string]*group{}
	for _, e := range remote {
		for _, text := range e.Addresses {
			a, err := netip.ParseAddr(text)
			if err != nil || !isIn(prefixes, text) {
				continue
			}
			family := discoveryv1.AddressTypeIPv6
			if a.Is4() {
				family = discoveryv1.AddressTypeIPv4
			}
			key := string(family) + " " + portsKey(e.Ports)
			if groups[key] == nil {
				groups[key] = &group{family: family, ports: e.Ports}
			}
			groups[key].addresses = append(groups[key].addresses, a.String())
		}
	}
	for _, key := range slices.Sorted(maps.Keys(groups)) {
		g := groups[key]
		slices.Sort(g.addresses)
		n := 0
		for chunk := range slices.Chunk(slices.Compact(g.addresses), maxEndpoints) {
			desired = append(desired, newSlice(s, fmt.Sprintf("%s %s%d", s.UID, key, n), g.family, g.ports, chunk))
			n++
		}
	}
	return desired
}

// newSlice returns an EndpointSlice of ready endpoints. It has no Pods, nodes and zones: those are of another cluster.
func newSlice(s Service, identity string, family discoveryv1.AddressType, ports []v1alpha1.TrafficPort, addresses []string) discoveryv1.EndpointSlice {
	sum := sha256.Sum256([]byte(identity))
	slice := discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.Namespace, Name: s.Name[:min(len(s.Name), 200)] + "-remote-" + hex.EncodeToString(sum[:5]),
			Labels: map[string]string{
				discoveryv1.LabelServiceName: s.Name, discoveryv1.LabelManagedBy: ManagedBy, corev1.IsHeadlessService: "",
				v1alpha1.ManagedLabel: "true", // admission lets the agent write nothing else
			},
			// It lets the garbage collector delete the slice with the Service.
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Service", Name: s.Name, UID: s.UID}},
		},
		AddressType: family,
	}
	for _, p := range ports {
		port := discoveryv1.EndpointPort{Name: &p.Name, Port: p.Port}
		if p.Protocol != "" {
			protocol := corev1.Protocol(p.Protocol)
			port.Protocol = &protocol
		}
		if p.AppProtocol != "" {
			port.AppProtocol = &p.AppProtocol
		}
		slice.Ports = append(slice.Ports, port)
	}
	ready, terminating := true, false
	for _, a := range addresses {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{a}, Conditions: discoveryv1.EndpointConditions{Ready: &ready, Serving: &ready, Terminating: &terminating},
		})
	}
	return slice
}

// ForeignError is why the agent does not write an EndpointSlice: one of that name has another owner.
type ForeignError struct {
	// Namespace and Name of the slice.
	Namespace, Name string
}

// Error implements error.
func (e *ForeignError) Error() string {
	return fmt.Sprintf("EndpointSlice %s/%s: must not exist, or must have the label %s=%s: delete it", e.Namespace, e.Name, discoveryv1.LabelManagedBy, ManagedBy)
}

// Write turns the agent's own EndpointSlices of a Service into the desired ones. It adds before it deletes, and never
// changes those of others. An error of one slice does not stop the others: addresses of Pods that are gone must not stay.
func Write(ctx context.Context, c discoveryclient.EndpointSlicesGetter, s Service, desired, own []discoveryv1.EndpointSlice) error {
	existing := map[string]*discoveryv1.EndpointSlice{}
	for i := range own {
		existing[own[i].Name] = &own[i]
	}
	var errs []error
	for i := range desired {
		errs = append(errs, writeSlice(ctx, c, existing[desired[i].Name], &desired[i]))
		delete(existing, desired[i].Name)
	}
	for _, name := range slices.Sorted(maps.Keys(existing)) {
		err := c.EndpointSlices(s.Namespace).Delete(ctx, name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &existing[name].UID}})
		if err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("delete EndpointSlice %s/%s: %w", s.Namespace, name, err))
		}
	}
	return errors.Join(errs...)
}

// writeSlice creates or updates a slice. Old is the present one; nil for none.
func writeSlice(ctx context.Context, c discoveryclient.EndpointSlicesGetter, old, next *discoveryv1.EndpointSlice) (err error) {
	switch client := c.EndpointSlices(next.Namespace); {
	case old == nil:
		if _, err = client.Create(ctx, next, metav1.CreateOptions{FieldManager: v1alpha1.AgentFieldManager}); apierrors.IsAlreadyExists(err) {
			return &ForeignError{Namespace: next.Namespace, Name: next.Name}
		}
	case !isSame(old, next):
		next.UID, next.ResourceVersion = old.UID, old.ResourceVersion
		_, err = client.Update(ctx, next, metav1.UpdateOptions{FieldManager: v1alpha1.AgentFieldManager})
	}
	if err != nil {
		return fmt.Errorf("write EndpointSlice %s/%s: %w", next.Namespace, next.Name, err)
	}
	return nil
}

// NeedsUser reports whether only a user can end all causes of an error of Write: what may end by itself is tried again.
func NeedsUser(err error) bool {
	if joined, ok := errors.AsType[interface {
		error
		Unwrap() []error
	}](err); ok {
		return !slices.ContainsFunc(joined.Unwrap(), func(err error) bool { return !NeedsUser(err) })
	}
	_, foreign := errors.AsType[*ForeignError](err)
	return foreign || apierrors.IsForbidden(err) || apierrors.IsInvalid(err)
}

// isSame reports whether a slice has what is desired.
func isSame(old, next *discoveryv1.EndpointSlice) bool {
	return equality.Semantic.DeepEqual(old.Labels, next.Labels) && equality.Semantic.DeepEqual(old.OwnerReferences, next.OwnerReferences) &&
		equality.Semantic.DeepEqual(old.Endpoints, next.Endpoints) && portsKey(portsOf(old)) == portsKey(portsOf(next))
}
