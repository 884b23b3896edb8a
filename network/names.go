// SPDX-License-Identifier: Apache-2.0

package network

import (
	"regexp"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/validation/field"

	v1 "github.com/patchbay-cni/patchbay/api/v1"
)

// What may become the name of a file, an executable or a link on the host. The
// CEL rules of api/v1 have the same expressions; the daemon must not rely on the
// object having passed them.
var (
	hostName     = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$`)
	prefixName   = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]{0,13}$`)
	nicCharacter = regexp.MustCompile(`^[^/:\pZ\pC]+$`)
)

const (
	maxLinkName   = 15 // IFNAMSIZ of linux/if.h without its terminating zero
	maxLinkID     = 10 // "vx_" or ".4094" and this are at most maxLinkName
	maxPool       = 317
	maxTenants    = 256
	maxTenantName = 63
	defaultPrefix = "eth"
)

const hostNameRule = `use 1 to 63 letters, digits, "_", "." or "-", the first and the last a letter or digit`

func checkNames(f *faults, path *field.Path, spec *v1.NetworkSpec) {
	if !hostName.MatchString(spec.NetworkID) {
		f.invalid(path.Child("NetworkID"), spec.NetworkID, "names a link or a file on the nodes: "+hostNameRule)
	}
	if spec.NetworkType != "" && !hostName.MatchString(spec.NetworkType) {
		f.invalid(path.Child("NetworkType"), spec.NetworkType,
			"is ipvlan, macvlan, sriov or the name of a CNI plugin: "+hostNameRule)
	}
}

func checkTenants(f *faults, path *field.Path, kind string, tenants []string) {
	if len(tenants) == 0 {
		return
	}
	if kind != v1.KindClusterNetwork {
		f.forbidden(path, "only a ClusterNetwork is shared between namespaces: leave AllowedTenants out, or make it a ClusterNetwork")
	}
	if len(tenants) > maxTenants {
		f.list = append(f.list, field.TooMany(path, len(tenants), maxTenants))
	}
	for i, t := range tenants {
		if utf8.RuneCountInString(t) > maxTenantName {
			f.list = append(f.list, field.TooLong(path.Index(i), t, maxTenantName))
		}
	}
}

// validNIC reports whether the kernel takes name for a link (dev_valid_name in
// net/core/dev.c).
func validNIC(name string) bool {
	return len(name) <= maxLinkName && name != "." && name != ".." && utf8.ValidString(name) && nicCharacter.MatchString(name)
}
