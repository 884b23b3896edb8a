// SPDX-License-Identifier: Apache-2.0

package danmep

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
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
	"github.com/patchbay-cni/patchbay/daemon/internal/kubeclient"
	"github.com/patchbay-cni/patchbay/internal/kube"
)

// checkDelay is the time from the deletion of a DanmEp to the check of the journal. One check
// then serves several DanmEps that a DEL deletes one after the other.
const checkDelay = time.Second

// Watcher finds missing DanmEps of attached sandboxes. A DanmEp is missing after a forced
// deletion, or when the API server's store was restored to an older state. Without its DanmEp,
// nothing covers the addresses of an interface.
type Watcher struct {
	WatcherOptions
	cached client.Reader
	synced func() bool
	// queue has at most one key, checkKey.
	queue workqueue.TypedRateLimitingInterface[string]
}

// WatcherOptions has the dependencies of a Watcher. All are required.
type WatcherOptions struct {
	// Records returns the readable records of the journal, and an error if others are corrupt.
	Records func() ([]*attach.Record, error)
	// Recheck receives each record with a DanmEp that the cache lacks, or that lacks the finalizer of the
	// node. The cache may be stale, so that Recheck must read the DanmEp.
	Recheck func(*attach.Record)
	// NodeGone reports whether this node's Node was deleted. The controller then deletes the
	// DanmEps, which must not be created again. The daemon restarts when the Node is back.
	NodeGone func() bool
}

// checkKey stands for a check of the whole journal.
const checkKey = "DanmEps of this node"

// Watch starts a watch of the metadata of this node's DanmEps.
func Watch(ctx context.Context, conn *kubeclient.Connection, opts WatcherOptions) (*Watcher, error) {
	i, err := conn.Cache.GetInformer(ctx, danmEpMetadata(), cache.BlockUntilSynced(false))
	if err != nil {
		return nil, fmt.Errorf("watch DanmEps: %w", err)
	}
	w := &Watcher{WatcherOptions: opts, cached: conn.Cache, synced: i.HasSynced, queue: kubeclient.NewQueue[string]()}
	_, err = i.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		DeleteFunc: func(any) { w.queue.AddAfter(checkKey, checkDelay) },
	})
	if err != nil {
		return nil, fmt.Errorf("watch DanmEps: %w", err)
	}
	return w, nil
}

// Run checks the journal when the cache is filled, and then after each deletion of a DanmEp, until
// ctx ends. The first check finds DanmEps that were deleted while no daemon ran.
func (w *Watcher) Run(ctx context.Context) error {
	if !toolscache.WaitForCacheSync(ctx.Done(), w.synced) {
		return nil
	}
	w.queue.Add(checkKey)
	kubeclient.RunWorkers(ctx, w.queue, 1, func(ctx context.Context, _ string) error { return w.checkRecords(ctx) })
	return nil
}

// checkRecords passes the records with a missing DanmEp, or one without the finalizer, to Recheck.
func (w *Watcher) checkRecords(ctx context.Context) error {
	if w.NodeGone() {
		return nil
	}
	records, err := w.Records()
	if err != nil { // a retry does not repair a corrupt record
		logr.FromContextOrDiscard(ctx).Error(err, "Failed to read some records, whose DanmEps remain unchecked")
	}
	for _, rec := range records {
		due, err := w.needsRecheck(ctx, rec)
		if err != nil {
			return err
		}
		if due {
			w.Recheck(rec)
		}
	}
	return nil
}

// needsRecheck reports whether the cache lacks a DanmEp of the record, or has it without the finalizer.
func (w *Watcher) needsRecheck(ctx context.Context, rec *attach.Record) (bool, error) {
	for i := range rec.Interfaces {
		ifc := &rec.Interfaces[i]
		if !recordHasDanmEp(rec, ifc) {
			continue
		}
		metadata := danmEpMetadata()
		err := w.cached.Get(ctx, client.ObjectKey{Namespace: rec.PodNamespace, Name: ifc.EndpointName}, metadata)
		if client.IgnoreNotFound(err) != nil {
			return false, fmt.Errorf("get DanmEp %s/%s from the cache: %w", rec.PodNamespace, ifc.EndpointName, err)
		}
		if apierrors.IsNotFound(err) || metadata.UID != types.UID(ifc.EndpointUID) || lacksFinalizer(metadata) {
			return true, nil
		}
	}
	return false, nil
}

// lacksFinalizer reports whether a DanmEp needs the finalizer of the node, which a forced uninstallation removes. The API
// server adds none to an object that is being deleted.
func lacksFinalizer(ep client.Object) bool {
	return ep.GetDeletionTimestamp() == nil && !controllerutil.ContainsFinalizer(ep, v1.NodeFinalizer)
}

// recordHasDanmEp reports whether the interface must have a DanmEp: the interface exists, and its
// DanmEp was created. The DanmEps of a released record are being deleted.
func recordHasDanmEp(rec *attach.Record, ifc *attach.Interface) bool {
	return (rec.State == attach.Attached || rec.State == attach.Detaching) && ifc.EndpointUID != ""
}

// danmEpMetadata returns the metadata of an empty DanmEp.
func danmEpMetadata() *metav1.PartialObjectMetadata { return kube.PartialMetadata("DanmEp") }
