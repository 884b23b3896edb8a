// SPDX-License-Identifier: Apache-2.0

package network

import (
	"fmt"
	"strconv"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Schemes of naming a Pod's interfaces, the values of the CNI configuration's
// namingScheme.
const (
	// SchemeIndexed names an interface <container_prefix><index>.
	SchemeIndexed = ""
	// SchemeLegacy takes container_prefix itself, as DANM's legacy scheme does.
	SchemeLegacy = "legacy"
)

// InterfaceNames names the interfaces of a Pod, given the container_prefix of
// each one's network in the annotation's order. The first is ifName (CNI_IFNAME)
// whatever its network says: the runtime looks for that one. A name over 15
// bytes, invalid or there twice is an *InvalidError.
func InterfaceNames(scheme, ifName string, prefixes []string) ([]string, error) {
	if scheme != SchemeIndexed && scheme != SchemeLegacy {
		return nil, fmt.Errorf("name interfaces: %w: naming scheme %q: use %q or %q", ErrInvalid, scheme, SchemeIndexed, SchemeLegacy)
	}
	var f faults
	path := field.NewPath("interfaces")
	names := make([]string, len(prefixes))
	owners := map[string]int{}
	for i, prefix := range prefixes {
		names[i] = interfaceName(scheme, ifName, prefix, i)
		if !validNIC(names[i]) {
			f.invalid(path.Index(i), names[i], `is the name of an interface: use a container_prefix that makes at most 15 bytes without "/", ":" or white space`)
		}
		if owner, taken := owners[names[i]]; taken {
			f.invalid(path.Index(i), names[i], fmt.Sprintf("is the name of interface %d already: use networks with different container_prefix", owner))
			continue
		}
		owners[names[i]] = i
	}
	if err := f.err(""); err != nil {
		return nil, err
	}
	return names, nil
}

func interfaceName(scheme, ifName, prefix string, index int) string {
	if prefix == "" {
		prefix = defaultPrefix
	}
	switch {
	case index == 0:
		return ifName
	case scheme == SchemeLegacy:
		return prefix
	}
	return prefix + strconv.Itoa(index)
}
