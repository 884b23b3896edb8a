// SPDX-License-Identifier: Apache-2.0

package network

import (
	"errors"
	"fmt"
	"net/netip"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// firstInterface is kubelet's name of a Pod's first interface.
const firstInterface = "eth0"

// CheckPod checks the requests in the annotations of a Pod at its creation, with the rules that the
// node daemon applies at CNI ADD. networkOf returns a network, or nil if it does not exist.
// isNodeAddress, which may be nil, reports whether a node has an address. Requests that may become
// valid later, such as one for a missing network, are warnings. The error is an *InvalidError with
// paths in the annotation.
func CheckPod(
	namespace, scheme string, annotations map[string]string, networkOf func(Ref) *Network, isNodeAddress func(netip.Addr) bool,
) (warnings []string, err error) {
	requests, err := ParseInterfaces(annotations)
	if err != nil || len(requests) == 0 {
		return nil, err
	}
	key, _, _ := interfacesAnnotation(&faults{}, field.NewPath(""), annotations)
	c := podCheck{path: field.NewPath("metadata", "annotations").Key(key)}
	prefixes := make([]string, len(requests))
	for i, r := range requests {
		n := networkOf(r.Ref(namespace))
		if n == nil || n.Deleting {
			c.warnMissing(i, r.Ref(namespace), n != nil)
			prefixes[i] = fmt.Sprintf("?%d-", i) // unknown, and different from all others
			continue
		}
		prefixes[i] = n.Prefix
		c.addFaults(i, CheckRequest(n, namespace, r))
		c.addFaults(i, checkNodeAddresses(n, r, isNodeAddress))
		c.warnUnassigned(i, n)
	}
	_, err = InterfaceNames(scheme, firstInterface, prefixes)
	c.addNameFaults(err)
	return c.warnings, c.faults.err("")
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

// podCheck collects the faults and warnings of an annotation.
type podCheck struct {
	path     *field.Path
	faults   faults
	warnings []string
}

// warnMissing adds a warning for a network that the Pod waits for.
func (c *podCheck) warnMissing(i int, ref Ref, deleting bool) {
	why := "does not exist yet"
	if deleting {
		why = "is being deleted"
	}
	c.warnings = append(c.warnings, fmt.Sprintf("%s: %s %s: the Pod waits for it", c.path.Index(i), ref, why))
}

// addFaults adds the faults of one interface. Faults of the network itself get the path of the entry.
func (c *podCheck) addFaults(i int, err error) {
	invalid, ok := errors.AsType[*InvalidError](err)
	if !ok {
		return
	}
	for _, f := range invalid.Faults {
		fault := *f
		fault.Field = c.path.Index(i).String()
		if f.Field != "spec.AllowedTenants" {
			fault.Field += "." + f.Field
		}
		fault.Detail = invalid.Subject + ": " + f.Detail
		c.faults.list = append(c.faults.list, &fault)
	}
}

// warnUnassigned adds a warning for a TenantNetwork without a matching assignment.
func (c *podCheck) warnUnassigned(i int, n *Network) {
	if err := CheckAssignment(n); err != nil {
		c.warnings = append(c.warnings, fmt.Sprintf("%s: %v: the Pod waits until this is repaired", c.path.Index(i), err))
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
