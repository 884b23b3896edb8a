// SPDX-License-Identifier: Apache-2.0

package danmep

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
	"github.com/patchbay-cni/patchbay/daemon/internal/kubeclient"
	"github.com/patchbay-cni/patchbay/daemon/internal/nodestate"
	"github.com/patchbay-cni/patchbay/internal/kube"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// gcInterval is the mean time between two sweeps. Orphans are rare: they come from a lost journal,
// or from a create that succeeded after its request timed out.
const gcInterval = 10 * time.Minute

// GC deletes orphans: DanmEps of this node that no record of the journal has.
type GC struct {
	// Client sends each request to the API server, not to a cache.
	Client client.Client
	// Node is this node's name.
	Node string
	// Identity returns this node, and false until the Node was read.
	Identity func() (nodestate.Identity, bool)
	// Records returns the whole journal.
	Records func() ([]*attach.Record, error)
	// NetnsExists reports whether a network namespace exists. Its sandbox may then still run,
	// even if the journal has no record of it.
	NetnsExists func(netns string) (bool, error)
	// Addresses frees the addresses of deleted orphans.
	Addresses Collector
	// Trigger makes Run sweep at once. A recovery of a network sends to it, because the restored
	// state of the API server may contain DanmEps that were deleted. It may be nil.
	Trigger <-chan struct{}
}

// Collector frees the addresses of DanmEps that were deleted without a record.
type Collector interface {
	// CollectGarbage frees the addresses of a network that no entry and no DanmEp covers, and returns
	// their number.
	CollectGarbage(ctx context.Context, net network.Key) (int64, error)
	// Free removes the addresses from this node's entry. The allocator may have taken them over
	// from the DanmEp of that name at its start, and CollectGarbage never frees addresses in an entry.
	Free(ctx context.Context, net network.Key, owner string, v4, v6 netip.Addr) error
	// Forget reports that the release is not repeated.
	Forget(net network.Key, owner string, v4, v6 netip.Addr)
}

// Run sweeps at intervals and after each trigger, until ctx ends.
func (g *GC) Run(ctx context.Context) error {
	log := logr.FromContextOrDiscard(ctx)
	for ctx.Err() == nil {
		if err := g.Sweep(ctx); err != nil && ctx.Err() == nil {
			log.Error(err, "Failed to delete orphaned DanmEps")
		}
		select {
		case <-ctx.Done():
		case <-time.After(gcInterval/2 + rand.N(gcInterval)):
		case <-g.Trigger:
		}
	}
	return nil
}

// Sweep deletes the orphans whose network namespace is gone, and frees their addresses.
func (g *GC) Sweep(ctx context.Context) error {
	// The list must come before the journal: a record is written before its DanmEp is created,
	// and deleted after it.
	eps, err := g.listDanmEps(ctx)
	if err != nil {
		return err
	}
	known, err := g.knownDanmEps()
	if err != nil {
		return err
	}
	var errs []error
	touched := map[network.Key]bool{}
	for i := range eps {
		ep := &eps[i]
		key := client.ObjectKeyFromObject(ep)
		if from, moved := kube.MovedFrom(ep); moved {
			key = from
		}
		if known[key] {
			continue
		}
		removed, err := g.removeOrphan(ctx, ep)
		errs = append(errs, err)
		if removed {
			touched[kube.NetworkKeyOf(ep)] = true
			errs = append(errs, g.freeAddresses(ctx, ep))
		}
	}
	for net := range touched {
		if _, err := g.Addresses.CollectGarbage(ctx, net); err != nil && !errors.Is(err, attach.ErrNotFound) {
			errs = append(errs, fmt.Errorf("collect addresses of %s: %w", net.Ref, err))
		}
	}
	return errors.Join(errs...)
}

// listDanmEps returns the DanmEps that this node's daemon created. They have its finalizer, or the UID of the Node if
// a forced uninstallation has removed it. Those of DANM have neither.
func (g *GC) listDanmEps(ctx context.Context) ([]v1.DanmEp, error) {
	ctx, cancel := context.WithTimeout(ctx, 6*kubeclient.RequestTimeout)
	defer cancel()
	list := &v1.DanmEpList{}
	if err := g.Client.List(ctx, list, client.MatchingFields{"spec.Host": g.Node}); err != nil {
		return nil, fmt.Errorf("list DanmEps of node %s: %w", g.Node, err)
	}
	var own []v1.DanmEp
	node, known := g.Identity()
	for _, ep := range list.Items {
		isOfNode := known && ep.Spec.HostUID != "" && ep.Spec.HostUID == node.UID
		if isOfNode || controllerutil.ContainsFinalizer(&ep, v1.NodeFinalizer) {
			own = append(own, ep)
		}
	}
	return own, nil
}

// knownDanmEps returns the DanmEps of all records.
func (g *GC) knownDanmEps() (map[client.ObjectKey]bool, error) {
	records, err := g.Records()
	if err != nil {
		return nil, fmt.Errorf("read journal: %w", err)
	}
	known := map[client.ObjectKey]bool{}
	for _, rec := range records {
		if rec.OnNodeConfiguration() {
			continue
		}
		for i := range rec.Interfaces {
			known[client.ObjectKey{Namespace: rec.PodNamespace, Name: rec.Interfaces[i].EndpointName}] = true
		}
	}
	return known, nil
}

// removeOrphan deletes an orphan unless its network namespace may still exist.
func (g *GC) removeOrphan(ctx context.Context, ep *v1.DanmEp) (removed bool, err error) {
	if ep.Spec.Netns == "" {
		return false, nil // the sandbox may still run
	}
	if exists, err := g.NetnsExists(ep.Spec.Netns); exists || err != nil {
		return false, err
	}
	logr.FromContextOrDiscard(ctx).Info("Deleting an orphaned DanmEp, whose sandbox is gone and not in the journal",
		"danmep", client.ObjectKeyFromObject(ep).String(), "sandbox", ep.Spec.CID)
	if err := (danmEpClient{client: g.Client}).remove(ctx, ep); err != nil {
		return false, err
	}
	return true, nil
}

// freeAddresses removes the orphan's addresses from this node's entry.
func (g *GC) freeAddresses(ctx context.Context, ep *v1.DanmEp) error {
	e, err := kube.EndpointOf(ep)
	if err != nil || !e.V4.IsValid() && !e.V6.IsValid() {
		return err
	}
	net := kube.NetworkKeyOf(ep)
	if err := g.Addresses.Free(ctx, net, ep.Name, e.V4, e.V6); err != nil {
		return fmt.Errorf("free addresses of DanmEp %s/%s: %w", ep.Namespace, ep.Name, err)
	}
	g.Addresses.Forget(net, ep.Name, e.V4, e.V6)
	return nil
}
