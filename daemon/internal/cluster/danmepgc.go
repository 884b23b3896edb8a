// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
	"github.com/patchbay-cni/patchbay/internal/kube"
	"github.com/patchbay-cni/patchbay/ipam/claims"
)

// danmEpGCInterval is the time between two looks for orphans. They come from accidents
// only: a journal that was lost, a create that the API server did after its
// answer was given up.
const danmEpGCInterval = 10 * time.Minute

// DanmEpGC are DanmEps of this node that its journal does not know.
type DanmEpGC struct {
	// Client reads from the API server.
	Client client.Client
	// Node is this node's name.
	Node string
	// Records returns the whole journal.
	Records func() ([]*attach.Record, error)
	// NetnsExists reports whether a network namespace is there: then the sandbox may
	// still run, whatever the journal says.
	NetnsExists func(netns string) (bool, error)
	// Addresses frees what an orphan leaves.
	Addresses AddressCollector
	// Trigger has Run sweep at once: a network recovers, and its older state may have
	// brought DanmEps back. Nil never does.
	Trigger <-chan struct{}
}

// AddressCollector frees the addresses of DanmEps that were removed without a record.
type AddressCollector interface {
	// Collect frees what nobody covers, and returns how many addresses.
	Collect(ctx context.Context, net claims.Key) (int64, error)
	// Free makes this node answer no more for what it took over from the DanmEp of
	// that name when it started: what is in use here is never collected.
	Free(ctx context.Context, net claims.Key, owner string, v4, v6 netip.Addr) error
	// Forget says that no release will be repeated.
	Forget(net claims.Key, owner string, v4, v6 netip.Addr)
}

// Run sweeps now and then until ctx ends.
func (o *DanmEpGC) Run(ctx context.Context) error {
	log := logr.FromContextOrDiscard(ctx)
	for ctx.Err() == nil {
		if err := o.Sweep(ctx); err != nil && ctx.Err() == nil {
			log.Error(err, "Cannot look for DanmEps without a sandbox")
		}
		select {
		case <-ctx.Done():
		case <-time.After(danmEpGCInterval/2 + rand.N(danmEpGCInterval)):
		case <-o.Trigger:
		}
	}
	return nil
}

// Sweep removes the orphans whose namespace is gone, and frees their addresses.
func (o *DanmEpGC) Sweep(ctx context.Context) error {
	// First the list, then the journal: a record is written before its DanmEp is
	// made, and goes after it.
	eps, err := o.listDanmEps(ctx)
	if err != nil {
		return err
	}
	known, err := o.knownDanmEps()
	if err != nil {
		return err
	}
	var errs []error
	touched := map[claims.Key]bool{}
	for i := range eps {
		ep := &eps[i]
		key := client.ObjectKeyFromObject(ep)
		if from, moved := kube.MovedFrom(ep); moved {
			key = from
		}
		if known[key] {
			continue
		}
		gone, err := o.removeOrphan(ctx, ep)
		errs = append(errs, err)
		if gone {
			touched[kube.NetworkKeyOf(ep)] = true
			errs = append(errs, o.freeAddresses(ctx, ep))
		}
	}
	for net := range touched {
		if _, err := o.Addresses.Collect(ctx, net); err != nil && !errors.Is(err, attach.ErrNotFound) {
			errs = append(errs, fmt.Errorf("collect addresses of %s: %w", net.Ref, err))
		}
	}
	return errors.Join(errs...)
}

// listDanmEps returns the DanmEps that this node's daemon made.
func (o *DanmEpGC) listDanmEps(ctx context.Context) ([]v1.DanmEp, error) {
	ctx, cancel := context.WithTimeout(ctx, 6*requestTimeout)
	defer cancel()
	list := &v1.DanmEpList{}
	if err := o.Client.List(ctx, list, client.MatchingFields{"spec.Host": o.Node}); err != nil {
		return nil, fmt.Errorf("list DanmEps of node %s: %w", o.Node, err)
	}
	var ours []v1.DanmEp
	for _, ep := range list.Items {
		if controllerutil.ContainsFinalizer(&ep, v1.NodeFinalizer) {
			ours = append(ours, ep)
		}
	}
	return ours, nil
}

// knownDanmEps are the DanmEps that the journal answers for.
func (o *DanmEpGC) knownDanmEps() (map[client.ObjectKey]bool, error) {
	records, err := o.Records()
	if err != nil {
		return nil, fmt.Errorf("read journal: %w", err)
	}
	known := map[client.ObjectKey]bool{}
	for _, rec := range records {
		for i := range rec.Interfaces {
			known[client.ObjectKey{Namespace: rec.PodNamespace, Name: rec.Interfaces[i].EndpointName}] = true
		}
	}
	return known, nil
}

// removeOrphan removes an orphan unless its namespace is still there.
func (o *DanmEpGC) removeOrphan(ctx context.Context, ep *v1.DanmEp) (gone bool, err error) {
	if ep.Spec.Netns == "" {
		return false, nil // nothing tells whether it is in use
	}
	if alive, err := o.NetnsExists(ep.Spec.Netns); alive || err != nil {
		return false, err
	}
	logr.FromContextOrDiscard(ctx).Info("Removing a DanmEp whose sandbox is gone and not in the journal",
		"danmep", client.ObjectKeyFromObject(ep).String(), "sandbox", ep.Spec.CID)
	if err := (danmEpClient{client: o.Client}).remove(ctx, ep); err != nil {
		return false, err
	}
	return true, nil
}

// freeAddresses ends this node's answering for the orphan's addresses.
func (o *DanmEpGC) freeAddresses(ctx context.Context, ep *v1.DanmEp) error {
	e, err := kube.EndpointOf(ep)
	if err != nil || !e.V4.IsValid() && !e.V6.IsValid() {
		return err
	}
	net := kube.NetworkKeyOf(ep)
	if err := o.Addresses.Free(ctx, net, ep.Name, e.V4, e.V6); err != nil {
		return fmt.Errorf("free addresses of DanmEp %s/%s: %w", ep.Namespace, ep.Name, err)
	}
	o.Addresses.Forget(net, ep.Name, e.V4, e.V6)
	return nil
}
