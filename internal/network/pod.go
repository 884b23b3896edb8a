// SPDX-License-Identifier: Apache-2.0

package network

import (
	"errors"
	"fmt"
	"net/netip"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// firstInterface is what kubelet calls a Pod's first interface.
const firstInterface = "eth0"

// CheckPod checks at its creation what a Pod of the namespace asks for in its
// annotations, as the node daemon does at CNI ADD. Look returns a network, or nil for
// one that is not there. What may still become true, such as a network to come, is a
// warning. Node, which may be nil, reports whether a node has an address. The error is an
// *InvalidError whose paths are the annotation's.
func CheckPod(namespace, scheme string, annotations map[string]string, look func(Ref) *Network, node func(netip.Addr) bool) (warnings []string, err error) {
	requests, err := ParseInterfaces(annotations)
	if err != nil || len(requests) == 0 {
		return nil, err
	}
	key, _, _ := interfacesAnnotation(&faults{}, field.NewPath(""), annotations)
	c := podCheck{path: field.NewPath("metadata", "annotations").Key(key)}
	prefixes := make([]string, len(requests))
	for i, r := range requests {
		n := look(r.Ref(namespace))
		if n == nil || n.Deleting {
			c.warnMissing(i, r.Ref(namespace), n != nil)
			prefixes[i] = fmt.Sprintf("?%d-", i) // nobody knows yet, so it is not twice either
			continue
		}
		prefixes[i] = n.Prefix
		c.addFaults(i, n.CheckRequest(namespace, r))
		c.addFaults(i, n.checkNodeAddresses(r, node))
		c.warnUnassigned(i, n)
	}
	_, err = InterfaceNames(scheme, firstInterface, prefixes)
	c.addNameFaults(err)
	return c.warnings, c.faults.err("")
}

// podCheck collects what is wrong with an annotation.
type podCheck struct {
	path     *field.Path
	faults   faults
	warnings []string
}

// warnMissing warns of a network that the Pod will wait for.
func (c *podCheck) warnMissing(i int, ref Ref, deleting bool) {
	why := "does not exist yet"
	if deleting {
		why = "is being deleted"
	}
	c.warnings = append(c.warnings, fmt.Sprintf("%s: %s %s: the Pod waits for it", c.path.Index(i), ref, why))
}

// addFaults takes over the faults of one interface. Those of the network itself are
// told at the key that names it.
func (c *podCheck) addFaults(i int, err error) {
	invalid, ok := errors.AsType[*InvalidError](err)
	if !ok {
		return
	}
	for _, f := range invalid.Faults {
		told := *f
		told.Field = c.path.Index(i).String()
		if f.Field != "spec.AllowedTenants" {
			told.Field += "." + f.Field
		}
		told.Detail = invalid.Subject + ": " + f.Detail
		c.faults.list = append(c.faults.list, &told)
	}
}

// warnUnassigned warns of a tenant's network that nothing was assigned to.
func (c *podCheck) warnUnassigned(i int, n *Network) {
	if err := n.CheckAssignment(); err != nil {
		c.warnings = append(c.warnings, fmt.Sprintf("%s: %v: the Pod waits until that is mended", c.path.Index(i), err))
	}
}

// addNameFaults takes over what is wrong with the names of the interfaces.
func (c *podCheck) addNameFaults(err error) {
	invalid, ok := errors.AsType[*InvalidError](err)
	if !ok {
		return
	}
	for _, f := range invalid.Faults {
		told := *f
		told.Field = c.path.String() + f.Field[len("interfaces"):]
		c.faults.list = append(c.faults.list, &told)
	}
}
