// SPDX-License-Identifier: Apache-2.0

package network

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
)

// firstInterface is kubelet's name of a Pod's first interface.
const firstInterface = "eth0"

// PodTemplate is a Pod, or the template of a workload's Pods, as far as it requests networks.
type PodTemplate struct {
	// Namespace of the Pod.
	Namespace string
	// Path is the template's in its workload; nil for a Pod.
	Path *field.Path
	// Annotations of the Pod.
	Annotations map[string]string
	// HostNetwork is true if the Pod uses the node's network.
	HostNetwork bool
	// Mirror is true for the copy of a static Pod at the API server. No request changes the Pod itself,
	// which kubelet reads from a file.
	Mirror bool
	// Containers of the Pod in the order in which they start.
	Containers []PodContainer
	// AffinityTerms is the number of terms to which admission adds the NICs of the Pod's networks; 0 if it adds none.
	AffinityTerms int
}

// annotations returns the path of the annotations.
func (p *PodTemplate) annotations() *field.Path { return p.Path.Child("metadata", "annotations") }

// PodWarnings are what a user of a valid Pod should know.
type PodWarnings struct {
	// Mistakes are requests that work, and probably not as the user intends.
	Mistakes []string
	// Notes are what is right for another plugin, and has no effect in Patchbay.
	Notes []string
	// Waits are what the Pod waits for, such as a network that does not exist yet.
	Waits []string
	// Missing are the requested networks that do not exist, of which there is a warning too.
	Missing []Ref
}

// All returns all warnings.
func (w PodWarnings) All() []string { return slices.Concat(w.Mistakes, w.Notes, w.Waits) }

// PodChecker checks the requests of Pods at their creation, with the rules that the node daemon
// applies at CNI ADD.
type PodChecker struct {
	// NamingScheme is the scheme of interface names; see InterfaceNames.
	NamingScheme string
	// NetworkOf returns a network, or nil if it does not exist.
	NetworkOf func(Ref) *Network
	// IsInvalid, which may be nil, reports whether a network exists that breaks a rule. NetworkOf
	// returns nil for it.
	IsInvalid func(Ref) bool
	// IsNodeAddress, which may be nil, reports whether a node has an address.
	IsNodeAddress func(netip.Addr) bool
}

// Check returns the faults of a Pod as an *InvalidError with paths in the annotation.
func (c *PodChecker) Check(p PodTemplate) (PodWarnings, error) {
	check := podCheck{template: p}
	check.warnUnread()
	check.checkNodeAffinity()
	key, requests, err := parseInterfaces(p.annotations(), p.Annotations)
	if err != nil {
		return check.warnings, err
	}
	check.path = p.annotations()
	if key != "" {
		check.path = check.path.Key(key)
	}
	prefixes := make([]string, len(requests))
	for i, r := range requests {
		ref := r.Ref(p.Namespace)
		n := c.NetworkOf(ref)
		if n == nil || n.Deleting {
			check.warnMissing(i, ref, c.whyMissing(n, ref), SuggestKind(ref, p.Namespace, c.NetworkOf), c.HasNetwork(ref))
			prefixes[i] = fmt.Sprintf("?%d-", i) // unknown, and different from all others
			continue
		}
		prefixes[i] = n.Prefix
		check.addFaults(i, CheckRequest(n, p.Namespace, r))
		check.addFaults(i, checkNodeAddresses(n, r, c.IsNodeAddress))
		check.warnUnassigned(i, n)
		check.warnNoAddress(i, n, r)
		if i == 0 {
			check.warnFirst(n, c.defaultNetwork(p.Namespace))
		}
	}
	_, err = InterfaceNames(c.NamingScheme, firstInterface, prefixes)
	check.addNameFaults(err)
	needs := c.Needs(p)
	check.checkDevices(needs)
	check.checkAffinityTerms(needs)
	return check.warnings, check.faults.err("")
}

// HasNetwork reports whether a network exists, whether it is valid or not.
func (c *PodChecker) HasNetwork(ref Ref) bool {
	return c.NetworkOf(ref) != nil || c.IsInvalid != nil && c.IsInvalid(ref)
}

// whyMissing says why Pods cannot use a network that NetworkOf returned.
func (c *PodChecker) whyMissing(n *Network, ref Ref) string {
	switch {
	case n != nil:
		return "is being deleted"
	case c.IsInvalid != nil && c.IsInvalid(ref):
		return "breaks a rule, which its next change must repair"
	}
	return "does not exist yet"
}

// defaultNetwork returns the network of a Pod without an annotation; nil when there is none.
func (c *PodChecker) defaultNetwork(namespace string) *Network {
	for _, ref := range DefaultRefs(namespace) {
		if n := c.NetworkOf(ref); n != nil && !n.Deleting {
			return n
		}
	}
	return nil
}

// checkNodeAddresses rejects static addresses that a node has; isNodeAddress may be nil. The node
// daemon rejects them when it claims.
func checkNodeAddresses(n *Network, r InterfaceRequest, isNodeAddress func(netip.Addr) bool) error {
	var f faults
	for _, a := range []struct {
		field  string
		static netip.Addr
	}{{"ip", r.V4.Static}, {"ip6", r.V6.Static}} {
		if isNodeAddress != nil && a.static.IsValid() && isNodeAddress(a.static) {
			f.invalid(field.NewPath(a.field), a.static.String(), "must not be an address of a node, because the Pod would get the node's packets: use another address")
		}
	}
	return f.err(n.Ref.String())
}

// podCheck collects the faults and warnings of a Pod.
type podCheck struct {
	template PodTemplate
	// path is that of the annotation.
	path     *field.Path
	faults   faults
	warnings PodWarnings
}

// warnUnread adds warnings for annotations that have no effect.
func (c *podCheck) warnUnread() {
	path := c.template.annotations()
	for _, key := range InterfaceAnnotations() {
		if _, ok := c.template.Annotations[key]; ok && c.template.HostNetwork {
			c.warnMistake(fmt.Sprintf("%s: the Pod uses the node's network, so %s has no effect: remove one of the two",
				c.template.Path.Child("spec", "hostNetwork"), path.Key(key)))
		}
	}
	if _, ok := c.template.Annotations[netAttachDefsAnnotation]; ok {
		c.warnings.Notes = append(c.warnings.Notes, fmt.Sprintf("%s: Patchbay does not serve NetworkAttachmentDefinitions yet, so only another plugin, such as Multus, adds these interfaces: use %s for Patchbay's networks",
			path.Key(netAttachDefsAnnotation), v1.InterfacesAnnotation))
	}
	for _, w := range UnknownAnnotations(path, c.template.Annotations, append(InterfaceAnnotations(), v1.NodeAffinityAnnotation)) {
		c.warnMistake(w)
	}
}

// checkNodeAffinity adds a fault for an unknown value of the annotation.
func (c *podCheck) checkNodeAffinity() {
	if value, ok := c.template.Annotations[v1.NodeAffinityAnnotation]; ok && value != v1.NodeAffinityNone {
		c.faults.list = append(c.faults.list, field.NotSupported(c.template.annotations().Key(v1.NodeAffinityAnnotation), value, []string{v1.NodeAffinityNone}))
	}
}

func (c *podCheck) warnMistake(text string) { c.warnings.Mistakes = append(c.warnings.Mistakes, text) }

// warnNoAddress adds a warning for an interface without an address in a network that has some. The
// value "none" says that this is intended.
func (c *podCheck) warnNoAddress(i int, n *Network, r InterfaceRequest) {
	if c.template.HostNetwork || n.Delegates() || n.V4 == nil && n.V6 == nil || r.DeclinesAddress || !r.V4.None() || !r.V6.None() {
		return
	}
	key := "ip"
	if n.V4 == nil {
		key = "ip6"
	}
	c.warnMistake(fmt.Sprintf("%s: the Pod gets no address of %s: set %s to \"dynamic\", or to \"none\" if this is intended",
		c.path.Index(i), n.Ref, key))
}

// warnFirst adds a warning if the first interface is not in a default network. Kubernetes reports
// the addresses of the first interface as the Pod's. Another plugin's network, such as flannel, is
// often the cluster's own under another name.
func (c *podCheck) warnFirst(n, standard *Network) {
	if c.template.HostNetwork || standard == nil || n.Ref.Name == v1.DefaultNetworkName || n.Delegates() {
		return
	}
	c.warnMistake(fmt.Sprintf("%s: the Pod's IP, which Services and probes use, is that of its first interface, in %s: put %s before it if the Pod needs the default network",
		c.path.Index(0), n.Ref, exampleEntry(standard)))
}

// exampleEntry is an entry of the annotation that requests an interface with its addresses.
func exampleEntry(n *Network) string {
	entry := fmt.Sprintf("{%q: %q", ReferenceKey(n.Ref.Kind), n.Ref.Name)
	if n.V4 != nil {
		entry += `, "ip": "dynamic"`
	}
	if n.V6 != nil {
		entry += `, "ip6": "dynamic"`
	}
	return entry + "}"
}

// warnMissing adds a warning for a network that the Pod waits for. One that does not exist is a likely
// mistake if there is a suggestion.
func (c *podCheck) warnMissing(i int, ref Ref, why, suggestion string, exists bool) {
	if c.template.HostNetwork {
		return
	}
	if !exists {
		c.warnings.Missing = append(c.warnings.Missing, ref)
	}
	if suggestion != "" {
		c.warnMistake(fmt.Sprintf("%s: %s %s, but %s", c.path.Index(i), ref, strings.TrimSuffix(why, " yet"), suggestion))
		return
	}
	c.warnings.Waits = append(c.warnings.Waits, fmt.Sprintf("%s: %s %s: the Pod waits for it; if its NetworkType is sriov, create the Pod again", c.path.Index(i), ref, why))
}

// addFaults adds the faults of one interface. Faults of the network itself get the path of the entry.
func (c *podCheck) addFaults(i int, err error) {
	invalid, ok := errors.AsType[*InvalidError](err)
	if !ok {
		return
	}
	for _, f := range invalid.Faults {
		fault := *f
		fault.Field = c.path.Index(i).Child(f.Field).String()
		fault.Detail = invalid.Subject + ": " + f.Detail
		if f.Field == "spec.AllowedTenants" {
			fault.Field = c.path.Index(i).String()
			fault.Detail = invalid.Subject + ": " + f.Field + " " + f.Detail
		}
		c.faults.list = append(c.faults.list, &fault)
	}
}

// warnUnassigned adds a warning for a TenantNetwork without a matching assignment.
func (c *podCheck) warnUnassigned(i int, n *Network) {
	if err := CheckAssignment(n); err != nil && !c.template.HostNetwork {
		c.warnings.Waits = append(c.warnings.Waits, fmt.Sprintf("%s: %v: the Pod waits until this is repaired", c.path.Index(i), err))
	}
}

// addNameFaults adds the faults of the interfaces' names.
func (c *podCheck) addNameFaults(err error) {
	invalid, ok := errors.AsType[*InvalidError](err)
	if !ok {
		return
	}
	for _, f := range invalid.Faults {
		fault := *f
		fault.Field = c.path.String() + f.Field[len("interfaces"):]
		c.faults.list = append(c.faults.list, &fault)
	}
}
