// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/patchbay-cni/patchbay/internal/network"
)

// requestedInterface is one interface that a Pod asks for, with its network.
type requestedInterface struct {
	request network.InterfaceRequest
	network *network.Network
}

// newRecord is the plan for a Pod's sandbox, one interface per want, in their
// order. It is pure.
func newRecord(req *Request, pod *corev1.Pod, asked []requestedInterface) (*Record, error) {
	names, err := network.InterfaceNames(req.NamingScheme, req.IfName, interfacePrefixes(asked))
	if err != nil {
		return nil, withReason(ReasonInterfaces, fmt.Errorf("name the Pod's interfaces: %w", err))
	}
	rec := &Record{
		ContainerID: req.ContainerID, IfName: req.IfName, NetName: req.NetName, Netns: req.Netns, Path: req.Path,
		PodNamespace: pod.Namespace, PodName: pod.Name, PodUID: string(pod.UID), Labels: withoutReservedLabels(pod.Labels),
		State: Attaching,
	}
	for i, w := range asked {
		if err := w.admit(pod.Namespace); err != nil {
			return nil, fmt.Errorf("interface %d (%s): %w", i, names[i], err)
		}
		v4, v6 := w.addressRequests()
		rec.Interfaces = append(rec.Interfaces, Interface{
			Name:         names[i],
			Network:      *w.network,
			StaticV4:     v4.Static.IsValid(),
			StaticV6:     v6.Static.IsValid(),
			Proutes:      slices.Concat(w.request.Proutes, w.request.Proutes6),
			EndpointName: endpointName(pod.Name, req.ContainerID, names[i]),
		})
	}
	return rec, nil
}

func interfacePrefixes(asked []requestedInterface) []string {
	list := make([]string, len(asked))
	for i, w := range asked {
		list[i] = w.network.Prefix
	}
	return list
}

// admit reports whether a Pod of the namespace may have what it asks for now.
func (w requestedInterface) admit(namespace string) error {
	n := w.network
	if n.Deleting {
		return withReasonf(ReasonNetwork, "network %s is being deleted and takes no new Pods", n.Ref)
	}
	if !n.Allows(namespace) {
		return withReason(ReasonTenant, n.CheckRequest(namespace, w.request))
	}
	if err := n.CheckAssignment(); err != nil {
		return withReason(ReasonNetwork, err)
	}
	if err := n.CheckRequest(namespace, w.request); err != nil {
		return withReason(ReasonInterfaces, err)
	}
	return nil
}

// addressRequests are what is to be claimed: nothing for a delegate, which has an
// address management of its own.
func (w requestedInterface) addressRequests() (v4, v6 AddressRequest) {
	if w.network.Delegates() {
		return AddressRequest{}, AddressRequest{}
	}
	return AddressRequest(w.request.V4), AddressRequest(w.request.V6)
}

// Lengths of an endpoint's name in bytes: 57 in all, so that it also fits where
// a DNS label is wanted (RFC 1123: 63).
const (
	maxEndpointPodLen = 40
	endpointHashLen   = 8
)

// endpointName names the DanmEp of one interface: "<Pod>-<hash of sandbox and
// interface>". A repeated or replayed ADD finds the same object by it, and a
// Pod's next sandbox does not. The result is a DNS subdomain (RFC 1123), as a
// Pod's name is.
func endpointName(pod, containerID, ifName string) string {
	sum := sha256.Sum256([]byte(containerID + "\x00" + ifName))
	if len(pod) > maxEndpointPodLen {
		pod = pod[:maxEndpointPodLen]
	}
	return strings.TrimRight(pod, "-.") + "-" + hex.EncodeToString(sum[:endpointHashLen])
}

// withoutReservedLabels returns the labels without those of our own domains: a user must not
// be able to label a DanmEp as one of our programs would.
func withoutReservedLabels(labels map[string]string) map[string]string {
	kept := make(map[string]string, len(labels))
	for key, value := range labels {
		if domain, _, prefixed := strings.Cut(key, "/"); !prefixed || !isReservedDomain(domain) {
			kept[key] = value
		}
	}
	return kept
}

// isReservedDomain reports whether a label's prefix is one of our domains or below one.
func isReservedDomain(domain string) bool {
	for _, d := range []string{"danm.io", "danm.k8s.io", "patchbay.io"} {
		if domain == d || strings.HasSuffix(domain, "."+d) {
			return true
		}
	}
	return false
}
