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
	"github.com/patchbay-cni/patchbay/ipam/claims"
)

// daemon is one life of a node's daemon. It does with addresses what daemon/internal/attach and
// daemon/internal/cluster do, and in their order.
type daemon struct {
	*claims.Allocator
	machine     *machine
	incarnation int64
	api         client.Client
	ns          string // of its Pods
	registry    *addressRegistry
}

// attach claims an address for an attachment: address, journal, interface.
func (d *daemon) attach(ctx context.Context, net *network.Network, owner string) error {
	a, _, err := d.Claim(ctx, net, claims.Want{Dynamic: true}, claims.Want{})
	if err != nil {
		return fmt.Errorf("claim on %s: %w", d.machine.name, err)
	}
	key := claims.KeyOf(net)
	if err := d.machine.update(d.incarnation, func() {
		d.machine.records[owner] = record{net: net, Use: claims.Use{Key: key, Owner: owner, V4: a, Phase: claims.Claimed}}
	}); err != nil {
		return err
	}
	var twice error
	if err := d.machine.update(d.incarnation, func() {
		twice = d.registry.acquire(key, a, owner)
		d.machine.interfaces[a] = true
	}); err != nil {
		return err
	}
	return twice
}

// publish makes the DanmEp of an attachment, in the background and after a restart, too.
func (d *daemon) publish(ctx context.Context, owner string) error {
	rec, ok := d.machine.record(owner)
	if !ok || rec.Phase != claims.Claimed {
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
	rec.Phase, rec.uid = claims.Published, string(ep.UID)
	if err := d.machine.update(d.incarnation, func() { d.machine.records[owner] = rec }); err != nil {
		return err
	}
	d.Published(rec.Key, owner, rec.V4, netip.Addr{})
	return nil
}

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

// detach detaches: interface, journal, then address and DanmEp as far as they are there.
func (d *daemon) detach(ctx context.Context, owner string) error {
	rec, ok := d.machine.record(owner)
	if !ok {
		return nil
	}
	if err := d.machine.update(d.incarnation, func() {
		if d.machine.interfaces[rec.V4] && d.registry.release(rec.Key, rec.V4, owner) {
			delete(d.machine.interfaces, rec.V4)
		}
		rec.Phase = claims.Releasing
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

// release gives an address back in the order of the design.
func (d *daemon) release(ctx context.Context, rec record) error {
	ep := &v1.DanmEp{}
	err := d.api.Get(ctx, client.ObjectKey{Namespace: d.ns, Name: rec.Owner}, ep)
	switch {
	case err == nil:
		if err := d.Return(ctx, rec.Key, rec.Owner, rec.V4, netip.Addr{}); err != nil {
			return err
		}
		if err := removeEndpoint(ctx, d.api, ep); err != nil {
			return err
		}
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("find DanmEp %s: %w", rec.Owner, err)
	}
	return d.Free(ctx, rec.Key, rec.Owner, rec.V4, netip.Addr{})
}

// removeEndpoint takes the finalizer off a DanmEp and deletes it, that one only.
func removeEndpoint(ctx context.Context, api client.Client, ep *v1.DanmEp) error {
	free := fmt.Sprintf(`{"metadata":{"uid":%q,"finalizers":null}}`, ep.UID)
	err := api.Patch(ctx, ep, client.RawPatch(types.MergePatchType, []byte(free)))
	if err == nil {
		err = api.Delete(ctx, ep, client.Preconditions{UID: &ep.UID})
	}
	if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // gone, or another one of that name
	}
	return fmt.Errorf("remove DanmEp %s: %w", ep.Name, err)
}

// recreateLost makes the DanmEps again that are gone though this node has not removed them.
func (d *daemon) recreateLost(ctx context.Context) error {
	var errs []error
	for _, rec := range d.machine.allRecords() {
		if rec.Phase != claims.Published {
			continue
		}
		err := d.api.Get(ctx, client.ObjectKey{Namespace: d.ns, Name: rec.Owner}, &v1.DanmEp{})
		if !apierrors.IsNotFound(err) {
			errs = append(errs, err)
			continue
		}
		rec.Phase, rec.uid = claims.Claimed, ""
		if err := d.machine.update(d.incarnation, func() { d.machine.records[rec.Owner] = rec }); err != nil {
			return err
		}
		d.Missing(rec.Key, rec.Owner, rec.V4, netip.Addr{})
		errs = append(errs, d.publish(ctx, rec.Owner))
	}
	return errors.Join(errs...)
}

// removeUnknown removes DanmEps of this node that its journal does not know: the API server made
// them after their creation was given up.
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
		key := claims.Key{Ref: network.Ref{Kind: ep.Spec.APIType, Name: ep.Spec.NetworkName}, UID: ep.Spec.NetworkUID}
		errs = append(errs, removeEndpoint(ctx, d.api, ep), d.Free(ctx, key, ep.Name, a, netip.Addr{}))
		d.Forget(key, ep.Name, a, netip.Addr{})
	}
	return errors.Join(errs...)
}
