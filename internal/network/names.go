// SPDX-License-Identifier: Apache-2.0

package network

import (
	"fmt"
	"regexp"
	"strconv"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Patterns of names that become files, executables or links on the host. The CEL rules of
// api/danm/v1 have the same expressions, but the daemon must not rely on these having been applied.
var (
	hostSafeName        = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$`)
	prefixPattern       = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]{0,13}$`)
	interfaceCharacters = regexp.MustCompile(`^[^/:\pZ\pC]+$`)
)

const (
	maxLinkName   = 15 // IFNAMSIZ of linux/if.h without its terminating zero
	maxLinkID     = 10 // leaves room for "vx_" or ".4094" within maxLinkName
	maxPool       = 317
	maxTenants    = 256
	maxTenantName = 63
	defaultPrefix = "eth"
)

const hostSafeNameRule = `use 1 to 63 letters, digits, "_", "." or "-", the first and the last a letter or digit`

// validInterfaceName reports whether the kernel accepts the name for a link (dev_valid_name in
// net/core/dev.c).
func validInterfaceName(name string) bool {
	return len(name) <= maxLinkName && name != "." && name != ".." && utf8.ValidString(name) && interfaceCharacters.MatchString(name)
}

// Naming schemes of a Pod's interfaces: the values of namingScheme in the CNI configuration.
const (
	// NamingSchemeIndexed names an interface <container_prefix><index>.
	NamingSchemeIndexed = ""
	// NamingSchemeLegacy names an interface <container_prefix>, as DANM's legacy scheme does.
	NamingSchemeLegacy = "legacy"
)

// InterfaceNames returns the names of a Pod's interfaces for the container_prefix of each one's network,
// in the annotation's order. The first is always ifName (CNI_IFNAME), which the runtime expects. A name
// over 15 bytes, invalid or used twice is an *InvalidError.
func InterfaceNames(scheme, ifName string, prefixes []string) ([]string, error) {
	if scheme != NamingSchemeIndexed && scheme != NamingSchemeLegacy {
		return nil, fmt.Errorf("name interfaces: %w: naming scheme must be %q or %q: got %q", ErrInvalid, NamingSchemeIndexed, NamingSchemeLegacy, scheme)
	}
	var f faults
	path := field.NewPath("interfaces")
	names := make([]string, len(prefixes))
	owners := map[string]int{}
	for i, prefix := range prefixes {
		names[i] = interfaceName(scheme, ifName, prefix, i)
		if !validInterfaceName(names[i]) {
			rule := `must be at most 15 bytes without "/", ":" or white space`
			if i > 0 {
				rule += fmt.Sprintf(", and is made from the network's container_prefix %q: ask a netadmin for a network with another container_prefix", prefix)
			}
			f.invalid(path.Index(i), names[i], rule)
		}
		if owner, taken := owners[names[i]]; taken {
			f.invalid(path.Index(i), names[i], fmt.Sprintf("must not be the name of interfaces[%d] too: use a network with another container_prefix, because names are made from it", owner))
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
	case scheme == NamingSchemeLegacy:
		return prefix
	}
	return prefix + strconv.Itoa(index)
}
