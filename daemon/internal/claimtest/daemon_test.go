// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package claimtest_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/ipam/allocator"
)

// daemon is one incarnation of a node's daemon. It calls the allocator in the order of the packages
// daemon/internal/attach and daemon/internal/danmep.
type daemon struct {
	*allocator.Allocator
	machine     *machine
	incarnation int64
	api         client.Client
	ns          string // the namespace of its Pods
	registry    *addressRegistry
}

// attach claims an address, journals it and creates the interface.
func (d *daemon) attach(ctx context.Context, net *network.Network, owner string) error {
	a, _, err := d.Claim(ctx, net, allocator.AddressRequest{Dynamic: true}, allocator.AddressRequest{})
	if err != nil {
		return fmt.Errorf("claim on %s: %w", d.machine.name, err)
	}
	key := network.KeyOf(net)
	if err := d.machine.update(d.incarnation, func() {
		d.machine.records[owner] = record{net: net, Use: allocator.Use{Key: key, Owner: owner, V4: a, Phase: allocator.Claimed}}
	}); err != nil {
		return err
	}
	var duplicate error
	if err := d.machine.update(d.incarnation, func() {
		duplicate = d.registry.acquire(key, a, owner)
		d.machine.interfaces[a] = true
	}); err != nil {
		return err
	}
	return duplicate
}

// publish creates the DanmEp of an attachment, also after a restart.
func (d *daemon) publish(ctx context.Context, owner string) error {
	rec, ok := d.machine.record(owner)
	if !ok || rec.Phase != allocator.Claimed {
		return nil
	}
	ep := d.endpoint(rec)
	err := d.api.Create(ctx, ep)
	if apierrors.IsAlreadyExists(err) {
		err = d.api.Get(ctx, client.ObjectKeyFromObject(ep), ep)
	}
	if err != nil {
		return fmt.Errorf("publish %s: %w", owner, err)
	}
	rec.Phase, rec.uid = allocator.Published, string(ep.UID)
	if err := d.machine.update(d.incarnation, func() { d.machine.records[owner] = rec }); err != nil {
		return err
	}
	d.MarkPublished(rec.Key, owner, rec.V4, netip.Addr{})
	return nil
}

// endpoint returns the DanmEp of an attachment.
func (d *daemon) endpoint(rec record) *v1.DanmEp {
	return &v1.DanmEp{
		ObjectMeta: metav1.ObjectMeta{Name: rec.Owner, Namespace: d.ns, Finalizers: []string{v1.NodeFinalizer}},
		Spec: v1.DanmEpSpec{
			NetworkName: rec.net.Ref.Name, NetworkUID: rec.net.UID, APIType: rec.net.Ref.Kind, NetworkType: rec.net.Type,
			EndpointID: rec.Owner, Host: d.machine.name, HostUID: d.machine.uid, Pod: "pod", CID: rec.Owner,
			Interface: v1.DanmEpInterface{Name: "eth0", Address: netip.PrefixFrom(rec.V4, rec.net.V4.CIDR.Bits()).String()},
		},
	}
}

// detach removes the interface, journals that, and releases the address and the DanmEp.
func (d *daemon) detach(ctx context.Context, owner string) error {
	rec, ok := d.machine.record(owner)
	if !ok {
		return nil
	}
	if err := d.machine.update(d.incarnation, func() {
		if d.machine.interfaces[rec.V4] && d.registry.release(rec.Key, rec.V4, owner) {
			delete(d.machine.interfaces, rec.V4)
		}
		rec.Phase = allocator.Releasing
		d.machine.records[owner] = rec
	}); err != nil {
		return err
	}
	if err := d.release(ctx, rec); err != nil {
		return err
	}
	if err := d.machine.update(d.incarnation, func() { delete(d.machine.records, owner) }); err != nil {
		return err
	}
	d.Forget(rec.Key, owner, rec.V4, netip.Addr{})
	return nil
}

// release returns the address to the entry, deletes the DanmEp and frees the address.
func (d *daemon) release(ctx context.Context, rec record) error {
	ep := &v1.DanmEp{}
	err := d.api.Get(ctx, client.ObjectKey{Namespace: d.ns, Name: rec.Owner}, ep)
	switch {
	case err == nil:
		if err := d.ReturnToEntry(ctx, rec.Key, rec.Owner, rec.V4, netip.Addr{}); err != nil {
			return err
		}
		if err := removeEndpoint(ctx, d.api, ep); err != nil {
			return err
		}
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("get DanmEp %s: %w", rec.Owner, err)
	}
	return d.Free(ctx, rec.Key, rec.Owner, rec.V4, netip.Addr{})
}

// removeEndpoint removes the finalizers of a DanmEp and deletes it.
func removeEndpoint(ctx context.Context, api client.Client, ep *v1.DanmEp) error {
	patch := fmt.Sprintf(`{"metadata":{"uid":%q,"finalizers":null}}`, ep.UID)
	err := api.Patch(ctx, ep, client.RawPatch(types.MergePatchType, []byte(patch)))
	if err == nil {
		err = api.Delete(ctx, ep, client.Preconditions{UID: &ep.UID})
	}
	if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // it is gone, or another DanmEp has its name
	}
	return fmt.Errorf("remove DanmEp %s: %w", ep.Name, err)
}

// recreateLost creates the missing DanmEps again.
func (d *daemon) recreateLost(ctx context.Context) error {
	var errs []error
	for _, rec := range d.machine.allRecords() {
		if rec.Phase != allocator.Published {
			continue
		}
		err := d.api.Get(ctx, client.ObjectKey{Namespace: d.ns, Name: rec.Owner}, &v1.DanmEp{})
		if !apierrors.IsNotFound(err) {
			errs = append(errs, err)
			continue
		}
		rec.Phase, rec.uid = allocator.Claimed, ""
		if err := d.machine.update(d.incarnation, func() { d.machine.records[rec.Owner] = rec }); err != nil {
			return err
		}
		d.DanmEpMissing(rec.Key, rec.Owner, rec.V4, netip.Addr{})
		errs = append(errs, d.publish(ctx, rec.Owner))
	}
	return errors.Join(errs...)
}

// removeUnknown deletes the DanmEps of this node that are not in its journal. The API server created them
// after the request had timed out.
func (d *daemon) removeUnknown(ctx context.Context) error {
	list := &v1.DanmEpList{}
	if err := d.api.List(ctx, list, client.InNamespace(d.ns), client.MatchingFields{"spec.Host": d.machine.name}); err != nil {
		return fmt.Errorf("list DanmEps of %s: %w", d.machine.name, err)
	}
	var errs []error
	for i := range list.Items {
		ep := &list.Items[i]
		if _, known := d.machine.record(ep.Name); known {
			continue
		}
		a := netip.MustParsePrefix(ep.Spec.Interface.Address).Addr()
		key := network.Key{Ref: network.Ref{Kind: ep.Spec.APIType, Name: ep.Spec.NetworkName}, UID: ep.Spec.NetworkUID}
		errs = append(errs, removeEndpoint(ctx, d.api, ep), d.Free(ctx, key, ep.Name, a, netip.Addr{}))
		d.Forget(key, ep.Name, a, netip.Addr{})
	}
	return errors.Join(errs...)
}
