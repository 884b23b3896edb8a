// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/daemon/attach"
	"github.com/patchbay-cni/patchbay/ipam/claims"
)

// release gives back what the interfaces of a sandbox had, then forgets it.
func (p *Publisher) release(ctx context.Context, rec *attach.Record) error {
	var group errgroup.Group
	for i := range rec.Interfaces {
		group.Go(func() error { return p.releaseInterface(ctx, rec, &rec.Interfaces[i]) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	if err := p.records.Delete(rec.ContainerID, rec.IfName); err != nil {
		return fmt.Errorf("forget sandbox %s: %w", rec.ContainerID, err)
	}
	for i := range rec.Interfaces {
		ifc := &rec.Interfaces[i]
		p.coverage.Forget(claims.KeyOf(&ifc.Network), ifc.EndpointName, ifc.V4.Addr(), ifc.V6.Addr())
	}
	return nil
}

// releaseInterface is repeated after a crash at any point. Only a DanmEp that is
// still there proves that its address is still ours to take back; without one,
// the node's entry decides (Free does nothing when it does not cover the address).
func (p *Publisher) releaseInterface(ctx context.Context, rec *attach.Record, ifc *attach.Interface) error {
	net := claims.KeyOf(&ifc.Network)
	key := client.ObjectKey{Namespace: rec.PodNamespace, Name: ifc.EndpointName}
	ep, err := p.endpoints.find(ctx, key, ifc.EndpointName, types.UID(ifc.EndpointUID))
	if err != nil {
		return err
	}
	if ep != nil {
		if err := p.coverage.Return(ctx, net, ifc.EndpointName, ifc.V4.Addr(), ifc.V6.Addr()); err != nil {
			return fmt.Errorf("return addresses of %s to the node: %w", key, err)
		}
		if err := p.endpoints.remove(ctx, ep); err != nil {
			return err
		}
	}
	if err := p.coverage.Free(ctx, net, ifc.EndpointName, ifc.V4.Addr(), ifc.V6.Addr()); err != nil {
		return fmt.Errorf("free addresses of %s: %w", key, err)
	}
	return nil
}
