// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"

	"github.com/patchbay-cni/patchbay/daemon/attach"
	"github.com/patchbay-cni/patchbay/ipam/claims"
)

// publish creates the DanmEps that the record misses, journals their UIDs, and
// only then lets their addresses leave the node's entry.
func (p *Publisher) publish(ctx context.Context, rec *attach.Record, host Host) error {
	created, err := p.createMissing(ctx, rec, host)
	if len(created) > 0 {
		journalled := p.records.Update(rec.ContainerID, rec.IfName, func(r *attach.Record) error {
			for i := range r.Interfaces {
				if uid := created[r.Interfaces[i].EndpointName]; uid != "" {
					r.Interfaces[i].EndpointUID = uid
				}
			}
			return nil
		})
		if journalled != nil {
			return errors.Join(err, fmt.Errorf("journal DanmEps of sandbox %s: %w", rec.ContainerID, journalled))
		}
	}
	for i := range rec.Interfaces {
		ifc := &rec.Interfaces[i]
		if created[ifc.EndpointName] != "" {
			p.coverage.Published(claims.KeyOf(&ifc.Network), ifc.EndpointName, ifc.V4.Addr(), ifc.V6.Addr())
		}
	}
	return err
}

// createMissing creates DanmEps side by side and returns the UIDs of the new
// ones by name, also when others failed.
func (p *Publisher) createMissing(ctx context.Context, rec *attach.Record, host Host) (map[string]string, error) {
	uids := make([]string, len(rec.Interfaces))
	var group errgroup.Group
	for i := range rec.Interfaces {
		ifc := &rec.Interfaces[i]
		if ifc.EndpointUID != "" {
			continue
		}
		group.Go(func() error {
			uid, err := p.endpoints.create(ctx, endpoint(rec, ifc, host))
			if namespaceGone(err) {
				// Nothing can be created there any more. The address stays in
				// the node's entry until DEL.
				logr.FromContextOrDiscard(ctx).Info("No DanmEp: the namespace is being deleted", "interface", ifc.Name)
				return nil
			}
			uids[i] = string(uid)
			return err
		})
	}
	err := group.Wait()
	created := map[string]string{}
	for i, uid := range uids {
		if uid != "" {
			created[rec.Interfaces[i].EndpointName] = uid
		}
	}
	return created, err
}
