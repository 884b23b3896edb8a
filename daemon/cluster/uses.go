// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"github.com/patchbay-cni/patchbay/daemon/attach"
	"github.com/patchbay-cni/patchbay/ipam/claims"
)

// Uses is what the journal says of addresses, for an allocator that resumes.
func Uses(records []*attach.Record) []claims.Use {
	var uses []claims.Use
	for _, rec := range records {
		for i := range rec.Interfaces {
			ifc := &rec.Interfaces[i]
			uses = append(uses, claims.Use{
				Key: claims.KeyOf(&ifc.Network), Owner: ifc.EndpointName,
				V4: ifc.V4.Addr(), V6: ifc.V6.Addr(),
				Static4: ifc.StaticV4, Static6: ifc.StaticV6,
				Phase: phase(rec.State, ifc.EndpointUID),
			})
		}
	}
	return uses
}

// phase is how far an interface of a record has come.
func phase(state attach.State, endpointUID string) claims.Phase {
	switch {
	case state == attach.Released:
		return claims.Releasing
	case endpointUID != "":
		return claims.Published
	}
	return claims.Claimed
}
