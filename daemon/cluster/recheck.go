// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/daemon/attach"
	"github.com/patchbay-cni/patchbay/ipam/claims"
)

// Recheck makes the publisher read whether the DanmEps of a record are there, and
// create those again that are not. It returns at once.
func (p *Publisher) Recheck(rec *attach.Record) {
	p.suspects.Store(recordKey{rec.ContainerID, rec.IfName}, nil)
	p.add(rec)
}

// recheck finds out which DanmEps of a record are gone, takes note in the journal,
// and tells the allocator that it has to cover their addresses again. It returns
// the record as it is then. It is for the record's one worker: a release waits for
// it, and takes back what it covered.
func (p *Publisher) recheck(ctx context.Context, rec *attach.Record) (*attach.Record, error) {
	gone, err := p.gone(ctx, rec)
	if err != nil || len(gone) == 0 {
		return rec, err
	}
	var noted []attach.Interface
	err = p.records.Update(rec.ContainerID, rec.IfName, func(r *attach.Record) error {
		noted = nil
		for i := range r.Interfaces {
			ifc := &r.Interfaces[i]
			if answersFor(r, ifc) && gone[ifc.EndpointName] == ifc.EndpointUID {
				ifc.EndpointUID = ""
				noted = append(noted, *ifc)
			}
		}
		rec = r
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("journal that DanmEps of sandbox %s are gone: %w", rec.ContainerID, err)
	}
	for i := range noted {
		ifc := &noted[i]
		logr.FromContextOrDiscard(ctx).Info("A DanmEp is gone that this daemon did not remove; it is made again",
			"danmep", rec.PodNamespace+"/"+ifc.EndpointName, "network", ifc.Network.Ref.String())
		p.recovery.Missing(claims.KeyOf(&ifc.Network), ifc.EndpointName, ifc.V4.Addr(), ifc.V6.Addr())
	}
	return rec, nil
}

// gone reads the DanmEps that the record answers for, and returns the UIDs of
// those that do not exist by name.
func (p *Publisher) gone(ctx context.Context, rec *attach.Record) (map[string]string, error) {
	gone := map[string]string{}
	for i := range rec.Interfaces {
		ifc := &rec.Interfaces[i]
		if !answersFor(rec, ifc) {
			continue
		}
		key := client.ObjectKey{Namespace: rec.PodNamespace, Name: ifc.EndpointName}
		ep, err := p.endpoints.find(ctx, key, ifc.EndpointName, types.UID(ifc.EndpointUID))
		if err != nil {
			return nil, err
		}
		if ep == nil {
			gone[ifc.EndpointName] = ifc.EndpointUID
		}
	}
	return gone, nil
}
