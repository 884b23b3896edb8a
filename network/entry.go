// SPDX-License-Identifier: Apache-2.0

package network

import (
	"encoding/json"
	"strings"

	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	v1 "github.com/patchbay-cni/patchbay/api/v1"
)

// entryKeys are the keys of an entry, for errors.
const entryKeys = "network, tenantNetwork or clusterNetwork, and ip, ip6, proutes, proutes6, each once"

// entry is one interface in the annotation.
type entry struct {
	DanmNet        string            `json:"network"`
	TenantNetwork  string            `json:"tenantNetwork"`
	ClusterNetwork string            `json:"clusterNetwork"`
	IP             string            `json:"ip"`
	IP6            string            `json:"ip6"`
	Proutes        map[string]string `json:"proutes"`
	Proutes6       map[string]string `json:"proutes6"`
}

func parseEntry(f *faults, path *field.Path, raw json.RawMessage) InterfaceRequest {
	var e entry
	if !decodeEntry(f, path, raw, &e) {
		return InterfaceRequest{}
	}
	var r InterfaceRequest
	r.Kind, r.Network = parseReference(f, path, e)
	r.V4 = parseAddress(f, path.Child("ip"), ipv4, e.IP)
	r.V6 = parseAddress(f, path.Child("ip6"), ipv6, e.IP6)
	r.Proutes = parseRoutes(f, path.Child("proutes"), ipv4, e.Proutes)
	r.Proutes6 = parseRoutes(f, path.Child("proutes6"), ipv6, e.Proutes6)
	return r
}

// parseReference finds the one network that an entry names. An empty string is
// no reference: DANM's clients write all three keys.
func parseReference(f *faults, path *field.Path, e entry) (kind, name string) {
	references := []struct{ key, kind, name string }{
		{"network", v1.KindDanmNet, e.DanmNet},
		{"tenantNetwork", v1.KindTenantNetwork, e.TenantNetwork},
		{"clusterNetwork", v1.KindClusterNetwork, e.ClusterNetwork},
	}
	var key string
	for _, r := range references {
		if r.name == "" {
			continue
		}
		if kind != "" {
			f.forbidden(path.Child(r.key), "an interface is in one network, and this entry names \""+name+"\" in "+key+" already: leave one out")
			continue
		}
		key, kind, name = r.key, r.kind, r.name
	}
	if kind == "" {
		f.required(path, "name the network in network, tenantNetwork or clusterNetwork")
		return "", ""
	}
	for _, fault := range validation.NameIsDNSSubdomain(name, false) {
		f.invalid(path.Child(key), name, fault)
	}
	return kind, name
}

// parseAddress reads "dynamic", "none" (or nothing) or an address, whose mask is
// ignored: the network's is used.
func parseAddress(f *faults, path *field.Path, ip ipVersion, value string) AddressRequest {
	switch value {
	case "", "none":
		return AddressRequest{}
	case "dynamic":
		return AddressRequest{Dynamic: true}
	}
	text, mask, masked := strings.Cut(value, "/")
	a, ok := ip.parseAddr(text)
	if _, maskOK := ip.parsePrefix(text + "/" + mask); !ok || masked && !maskOK {
		f.invalid(path, value, `is "dynamic", "none" or `+ip.addrRule)
		return AddressRequest{}
	}
	return AddressRequest{Static: a}
}
