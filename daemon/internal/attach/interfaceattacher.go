// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/patchbay-cni/patchbay/internal/network"
)

// interfaceAttacher attaches and detaches the interfaces of a sandbox through their backends.
type interfaceAttacher struct {
	bootID    string
	hostLinks HostLinks
	netns     NetworkNamespaces
	backends  map[string]Backend
	delegate  Backend
}

// prepare lets backends complete their interfaces before anything is claimed.
func (a *interfaceAttacher) prepare(ctx context.Context, req *Request, rec *Record) error {
	for i := range rec.Interfaces {
		ifc := &rec.Interfaces[i]
		b, err := a.backendFor(&ifc.Network)
		if p, ok := b.(Preparer); ok && err == nil {
			err = p.Prepare(ctx, req, ifc)
		}
		if err != nil {
			return withNetwork(ifc.Network.Ref, fmt.Errorf("interface %d (%s), network %s: %w", i, ifc.Name, ifc.Network.Ref, err))
		}
	}
	return nil
}

// checkHostLinks returns an error if an interface cannot get its parent link. It runs before
// anything is claimed: addresses that are given back are in cooldown for a while, so that a Pod
// that can never start would use up addresses with each retry.
func (a *interfaceAttacher) checkHostLinks(ctx context.Context, rec *Record) error {
	for i := range rec.Interfaces {
		ifc := &rec.Interfaces[i]
		if !ifc.needsHostLink() {
			continue
		}
		if err := a.hostLinks.Check(ctx, &ifc.Network); err != nil {
			return withNetwork(ifc.Network.Ref, fmt.Errorf("attach %s to network %s: %w", ifc.Name, ifc.Network.Ref, err))
		}
	}
	return nil
}

// attach attaches all interfaces in parallel. The first failure cancels the others. It returns
// when all have ended.
func (a *interfaceAttacher) attach(ctx context.Context, rec *Record) error {
	group, groupCtx := errgroup.WithContext(ctx)
	for i := range rec.Interfaces {
		group.Go(func() error {
			ifc := &rec.Interfaces[i]
			if err := a.attachInterface(groupCtx, rec, ifc); err != nil {
				return withNetwork(ifc.Network.Ref, fmt.Errorf("attach %s to network %s: %w", ifc.Name, ifc.Network.Ref, err))
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	// An ADD whose caller has gone must fail, because no Pod will use its interfaces.
	return context.Cause(ctx)
}

// attachInterface attaches one interface.
func (a *interfaceAttacher) attachInterface(ctx context.Context, rec *Record, ifc *Interface) error {
	b, err := a.backendFor(&ifc.Network)
	if err != nil {
		return err
	}
	if ifc.needsHostLink() {
		if ifc.Parent, err = a.hostLinks.Parent(ctx, &ifc.Network); err != nil {
			return err
		}
	}
	if err := b.Attach(ctx, rec, ifc); err != nil {
		return err
	}
	// An invalid result must fail the ADD now, while it can be rolled back.
	_, err = ifc.result(rec.Netns)
	return err
}

// detach detaches all interfaces in reverse order. It continues after a failure.
func (a *interfaceAttacher) detach(ctx context.Context, rec *Record) error {
	rec = a.withoutGoneNetns(rec)
	var failed []error
	for i := range slices.Backward(rec.Interfaces) {
		ifc := &rec.Interfaces[i]
		b, err := a.backendFor(&ifc.Network)
		if err == nil {
			err = b.Detach(ctx, rec, ifc)
		}
		if err != nil {
			failed = append(failed, fmt.Errorf("detach %s from network %s: %w", ifc.Name, ifc.Network.Ref, err))
		}
	}
	return errors.Join(failed...)
}

// withoutGoneNetns returns the record without its network namespace if the namespace is gone: after
// a reboot, its path may belong to another sandbox.
func (a *interfaceAttacher) withoutGoneNetns(rec *Record) *Record {
	if !a.netnsGone(rec) {
		return rec
	}
	rec = rec.Clone()
	rec.Netns = ""
	return rec
}

// netnsGone reports whether the record's network namespace is known to be gone.
func (a *interfaceAttacher) netnsGone(rec *Record) bool {
	if rec.BootID != a.bootID {
		return true
	}
	exists, err := a.netns.Exists(rec.Netns)
	return err == nil && !exists
}

// backendFor returns the backend of a network.
func (a *interfaceAttacher) backendFor(n *network.Network) (Backend, error) {
	b := a.backends[n.Type]
	if n.Delegates() {
		b = a.delegate
	}
	if b != nil {
		return b, nil
	}
	return nil, fmt.Errorf("network %s: NetworkType %s is not supported on this node", n.Ref, n.Type)
}
