// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/patchbay-cni/patchbay/internal/network"
)

// requestedInterface is one interface that a Pod requests, with its network.
type requestedInterface struct {
	request network.InterfaceRequest
	network *network.Network
}

// lookupNetworks returns the interfaces that a Pod requests, with their networks. The error for a network
// that does not exist names one of another kind that knownNetwork has.
func lookupNetworks(
	ctx context.Context, kube KubeClient, pod *corev1.Pod, knownNetwork func(network.Ref) *network.Network,
) ([]requestedInterface, error) {
	requests, err := network.ParseInterfaces(pod.Annotations)
	if err != nil {
		return nil, &causedError{cause: ErrInvalidAnnotation, err: err}
	}
	if len(requests) == 0 {
		r, err := lookupDefaultNetwork(ctx, kube, pod.Namespace)
		return []requestedInterface{r}, err
	}
	requested := make([]requestedInterface, len(requests))
	for i, r := range requests {
		ref := r.Ref(pod.Namespace)
		n, err := kube.Network(ctx, ref)
		if errors.Is(err, ErrNotFound) && knownNetwork != nil {
			if suggestion := network.SuggestKind(ref, pod.Namespace, knownNetwork); suggestion != "" {
				err = fmt.Errorf("%w, but %s", err, suggestion)
			}
		}
		if err != nil {
			return nil, fmt.Errorf("interface %d, network %s: %w", i, ref, err)
		}
		requested[i] = requestedInterface{request: r, network: n}
	}
	return requested, nil
}

// lookupDefaultNetwork returns the interface of a Pod that requests none: on the first default network that
// exists and is not being deleted, and on a CNI configuration of the node if the API server has answered
// that there is none. An invalid default network, or one that is unknown, is an error: its owner does not
// mean the Pod to get the next one.
func lookupDefaultNetwork(ctx context.Context, kube KubeClient, namespace string) (requestedInterface, error) {
	for _, ref := range network.DefaultRefs(namespace) {
		n, err := kube.Network(ctx, ref)
		switch {
		case err == nil && n.Deleting:
		case err == nil:
			return requestedInterface{request: network.DefaultRequest(n), network: n}, nil
		case !errors.Is(err, ErrNotFound):
			return requestedInterface{}, fmt.Errorf("default network %s: %w", ref, err)
		}
	}
	n := network.NodeConfiguration()
	return requestedInterface{request: network.DefaultRequest(n), network: n}, nil
}

// newRecord returns the record of a Pod's sandbox, with the requested interfaces in their order. It
// has no side effect.
func newRecord(req *Request, pod *corev1.Pod, requested []requestedInterface) (*Record, error) {
	names, err := network.InterfaceNames(req.NamingScheme, req.IfName, interfacePrefixes(requested))
	if err != nil {
		return nil, &causedError{cause: ErrInvalidAnnotation, err: fmt.Errorf("name the Pod's interfaces: %w", err)}
	}
	rec := &Record{
		ContainerID: req.ContainerID, IfName: req.IfName, NetName: req.NetName, Netns: req.Netns, Path: req.Path,
		PodNamespace: pod.Namespace, PodName: pod.Name, PodUID: string(pod.UID), Labels: withoutReservedLabels(pod.Labels),
		State: Attaching,
	}
	for i, r := range requested {
		if err := r.admit(pod.Namespace); err != nil {
			return nil, withNetwork(r.network.Ref, fmt.Errorf("interface %d (%s): %w", i, names[i], err))
		}
		v4, v6 := r.addressRequests()
		ifc := Interface{
			Name:     names[i],
			Network:  *r.network,
			StaticV4: v4.Static.IsValid(),
			StaticV6: v6.Static.IsValid(),
			Proutes:  slices.Concat(r.request.Proutes, r.request.Proutes6),
		}
		if !r.network.IsNodeConfiguration() {
			ifc.EndpointName = endpointName(pod.Name, req.ContainerID, names[i])
		}
		rec.Interfaces = append(rec.Interfaces, ifc)
	}
	return rec, nil
}

// interfacePrefixes returns the prefixes of the interfaces' names.
func interfacePrefixes(requested []requestedInterface) []string {
	prefixes := make([]string, len(requested))
	for i, r := range requested {
		prefixes[i] = r.network.Prefix
	}
	return prefixes
}

// admit returns an error if a Pod of the namespace may not get the interface.
func (r requestedInterface) admit(namespace string) error {
	n := r.network
	if n.IsNodeConfiguration() {
		return nil // the Pod requests nothing that a rule could reject
	}
	if n.Deleting {
		return fmt.Errorf("network %s %w", n.Ref, ErrNetworkDeleting)
	}
	if n.Allows(namespace) {
		if err := network.CheckAssignment(n); err != nil {
			return err
		}
	}
	err := network.CheckRequest(n, namespace, r.request)
	switch {
	case err == nil:
		return nil
	case !n.Allows(namespace):
		return &causedError{cause: ErrNotAllowed, err: err}
	}
	return &causedError{cause: ErrInvalidAnnotation, err: err}
}

// addressRequests returns the addresses to claim. A delegate manages its addresses itself, so that
// nothing is claimed for it.
func (r requestedInterface) addressRequests() (v4, v6 AddressRequest) {
	if r.network.Delegates() {
		return AddressRequest{}, AddressRequest{}
	}
	return AddressRequest(r.request.V4), AddressRequest(r.request.V6)
}

// Lengths of the parts of an endpoint's name in bytes. The whole name has at most 57, so that it is
// also a valid DNS label (RFC 1123: 63).
const (
	maxEndpointPodLen = 40
	endpointHashLen   = 8
)

// endpointName returns the name of an interface's DanmEp: "<Pod>-<hash of sandbox and interface>". A
// repeated ADD gets the same name, and the Pod's next sandbox another one. Like a Pod's name, it is a
// DNS subdomain (RFC 1123).
func endpointName(pod, containerID, ifName string) string {
	sum := sha256.Sum256([]byte(containerID + "\x00" + ifName))
	if len(pod) > maxEndpointPodLen {
		pod = pod[:maxEndpointPodLen]
	}
	return strings.TrimRight(pod, "-.") + "-" + hex.EncodeToString(sum[:endpointHashLen])
}

// withoutReservedLabels returns the labels without those of Patchbay's domains, because only
// Patchbay's programs may set these on a DanmEp.
func withoutReservedLabels(labels map[string]string) map[string]string {
	kept := make(map[string]string, len(labels))
	for key, value := range labels {
		if domain, _, prefixed := strings.Cut(key, "/"); !prefixed || !isReservedDomain(domain) {
			kept[key] = value
		}
	}
	return kept
}

// isReservedDomain reports whether the domain of a label is one of Patchbay's domains or a subdomain.
func isReservedDomain(domain string) bool {
	for _, d := range []string{"danm.io", "danm.k8s.io", "patchbay.io"} {
		if domain == d || strings.HasSuffix(domain, "."+d) {
			return true
		}
	}
	return false
}
