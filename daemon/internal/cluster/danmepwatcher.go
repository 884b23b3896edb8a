// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
	"github.com/patchbay-cni/patchbay/internal/kube"
)

// danmEpCheckDelay is how long after a DanmEp went the journal is compared: those of
// an ordinary DEL go one after the other, and one look is enough for many.
const danmEpCheckDelay = time.Second

// DanmEpWatcher finds the DanmEps of attached sandboxes that are gone although this
// daemon did not remove them: by force, or because the API server's store was put
// back to an older state. Nothing covers their addresses then.
type DanmEpWatcher struct {
	DanmEpWatcherOptions
	cached client.Reader
	synced func() bool
	// queue has one key: a look.
	queue workqueue.TypedRateLimitingInterface[string]
}

// DanmEpWatcherOptions are whom a Vanished asks and tells; all are required.
type DanmEpWatcherOptions struct {
	// Records returns the journal, as far as it can be read.
	Records func() ([]*attach.Record, error)
	// Recheck is called for each record with a DanmEp that the cache does not have. The
	// cache may be stale: whether the DanmEp is gone is for a read to say.
	Recheck func(*attach.Record)
	// NodeGone reports whether this node's Node was deleted. Then the controller removes
	// the DanmEps, and to make them again would go on for ever. When the Node is back,
	// the daemon starts anew.
	NodeGone func() bool
}

// danmEpCheckKey is that key.
const danmEpCheckKey = "DanmEps of this node"

// WatchDanmEps starts to watch the metadata of this node's DanmEps.
func WatchDanmEps(ctx context.Context, conn *Connection, opts DanmEpWatcherOptions) (*DanmEpWatcher, error) {
	i, err := conn.Cache.GetInformer(ctx, danmEpMetadata(), cache.BlockUntilSynced(false))
	if err != nil {
		return nil, fmt.Errorf("watch DanmEps: %w", err)
	}
	v := &DanmEpWatcher{DanmEpWatcherOptions: opts, cached: conn.Cache, synced: i.HasSynced, queue: newQueue[string]()}
	_, err = i.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		DeleteFunc: func(any) { v.queue.AddAfter(danmEpCheckKey, danmEpCheckDelay) },
	})
	if err != nil {
		return nil, fmt.Errorf("watch DanmEps: %w", err)
	}
	return v, nil
}

// Run looks once the cache is filled, for what went while no daemon was there, and
// then whenever a DanmEp went, until ctx ends.
func (v *DanmEpWatcher) Run(ctx context.Context) error {
	if !toolscache.WaitForCacheSync(ctx.Done(), v.synced) {
		return nil
	}
	v.queue.Add(danmEpCheckKey)
	runWorkers(ctx, v.queue, 1, func(ctx context.Context, _ string) error { return v.checkRecords(ctx) })
	return nil
}

// checkRecords compares the journal with the cache.
func (v *DanmEpWatcher) checkRecords(ctx context.Context) error {
	if v.NodeGone() {
		return nil
	}
	records, err := v.Records()
	if err != nil { // one that cannot be read stays so
		logr.FromContextOrDiscard(ctx).Error(err, "Cannot tell for all sandboxes whether their DanmEps are there")
	}
	for _, rec := range records {
		gone, err := v.missesDanmEp(ctx, rec)
		if err != nil {
			return err
		}
		if gone {
			v.Recheck(rec)
		}
	}
	return nil
}

// missesDanmEp reports whether the cache lacks a DanmEp that the record answers for.
func (v *DanmEpWatcher) missesDanmEp(ctx context.Context, rec *attach.Record) (bool, error) {
	for i := range rec.Interfaces {
		ifc := &rec.Interfaces[i]
		if !recordHasDanmEp(rec, ifc) {
			continue
		}
		meta := danmEpMetadata()
		err := v.cached.Get(ctx, client.ObjectKey{Namespace: rec.PodNamespace, Name: ifc.EndpointName}, meta)
		if client.IgnoreNotFound(err) != nil {
			return false, fmt.Errorf("look for DanmEp %s/%s in the cache: %w", rec.PodNamespace, ifc.EndpointName, err)
		}
		if apierrors.IsNotFound(err) || meta.UID != types.UID(ifc.EndpointUID) {
			return true, nil
		}
	}
	return false, nil
}

// recordHasDanmEp reports whether the interface is there and its DanmEp was. One of a
// released record is this daemon's own to remove.
func recordHasDanmEp(rec *attach.Record, ifc *attach.Interface) bool {
	return (rec.State == attach.Attached || rec.State == attach.Detaching) && ifc.EndpointUID != ""
}

// danmEpMetadata is an empty DanmEp's metadata.
func danmEpMetadata() *metav1.PartialObjectMetadata { return kube.PartialMetadata("DanmEp") }
