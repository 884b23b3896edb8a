// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
	"github.com/patchbay-cni/patchbay/internal/kube"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/netwatcher"
)

// attachmentProbeInterval is the time between looks whether the cluster has
// NetworkAttachmentDefinitions by now.
const attachmentProbeInterval = time.Minute

// AttachmentCache are the models of NetworkAttachmentDefinitions that ask for a link on
// the host. The kind is Multus', and need not exist.
type AttachmentCache struct {
	conn     *Connection
	onChange func()
	interval time.Duration

	mu        sync.Mutex // guards what follows
	synced    bool
	forbidden bool // the daemon may not read them
	models    map[network.Ref]*network.Network
}

// NewAttachmentCache returns an empty set; Run fills it. Changed is called after each
// change and must not block.
func NewAttachmentCache(conn *Connection, changed func()) *AttachmentCache {
	return &AttachmentCache{conn: conn, onChange: changed, interval: attachmentProbeInterval, models: map[network.Ref]*network.Network{}}
}

// List returns the models. Before it is known whether there are any, the error wraps
// attach.ErrTryAgain, and when the daemon may not read them netwatcher.ErrIncomplete:
// links of theirs are not to be removed.
func (a *AttachmentCache) List() ([]*network.Network, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.synced {
		return nil, fmt.Errorf("list NetworkAttachmentDefinitions: %w: they were not read yet", attach.ErrTryAgain)
	}
	if a.forbidden {
		return nil, fmt.Errorf("list NetworkAttachmentDefinitions: %w: the daemon may not read them", netwatcher.ErrNetworksIncomplete)
	}
	all := make([]*network.Network, 0, len(a.models))
	for _, n := range a.models {
		all = append(all, n)
	}
	return all, nil
}

// Run watches them until ctx ends, as soon as the cluster has the kind.
func (a *AttachmentCache) Run(ctx context.Context) error {
	log := logr.FromContextOrDiscard(ctx)
	for told := false; ; told = true {
		pause, err := a.interval/2+rand.N(a.interval), a.probeKind(ctx)
		switch {
		case err == nil:
			return a.watch(ctx)
		case meta.IsNoMatchError(err), apierrors.IsNotFound(err):
			a.setSynced(false)
		case apierrors.IsForbidden(err):
			if !told {
				log.Error(err, "NetworkAttachmentDefinitions get no links: the daemon may not read them")
			}
			a.setSynced(true)
		default:
			pause = minBackoff + rand.N(2*time.Second)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

// probeKind asks whether there is the kind.
func (a *AttachmentCache) probeKind(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	list := &unstructured.UnstructuredList{}
	list.SetAPIVersion(kube.NetworkAttachmentDefinitionVersion)
	list.SetKind(network.KindNetworkAttachmentDefinition + "List")
	return a.conn.Direct.List(ctx, list, client.Limit(1))
}

func (a *AttachmentCache) watch(ctx context.Context) error {
	obj := &unstructured.Unstructured{}
	obj.SetAPIVersion(kube.NetworkAttachmentDefinitionVersion)
	obj.SetKind(network.KindNetworkAttachmentDefinition)
	i, err := a.conn.Cache.GetInformer(ctx, obj, cache.BlockUntilSynced(false))
	if err != nil {
		return watchError(ctx, "NetworkAttachmentDefinitions", err)
	}
	log := logr.FromContextOrDiscard(ctx)
	handling, err := i.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { a.upsert(log, obj) },
		UpdateFunc: func(_, obj any) { a.upsert(log, obj) },
		DeleteFunc: a.remove,
	})
	if err != nil {
		return watchError(ctx, "NetworkAttachmentDefinitions", err)
	}
	if toolscache.WaitForCacheSync(ctx.Done(), handling.HasSynced) {
		a.setSynced(false)
	}
	<-ctx.Done()
	return nil
}

// setSynced says that all there are were read, or that none may be.
func (a *AttachmentCache) setSynced(hidden bool) {
	a.mu.Lock()
	news := !a.synced || a.forbidden != hidden
	a.synced, a.forbidden = true, hidden
	a.mu.Unlock()
	if news {
		a.onChange()
	}
}

// upsert takes what one asks for. One that is wrong asks for nothing.
func (a *AttachmentCache) upsert(log logr.Logger, obj any) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return
	}
	config, _, _ := unstructured.NestedString(u.Object, "spec", "config")
	created := u.GetCreationTimestamp()
	n, err := network.FromNetworkAttachmentDefinition(&metav1.ObjectMeta{
		Namespace: u.GetNamespace(), Name: u.GetName(), UID: u.GetUID(), Generation: u.GetGeneration(),
		CreationTimestamp: created, DeletionTimestamp: u.GetDeletionTimestamp(),
	}, config)
	ref := kube.NetworkRefOf(network.KindNetworkAttachmentDefinition, u)
	if err != nil {
		log.Info("A NetworkAttachmentDefinition gets no link", "network", ref.String(), "error", err.Error())
	}
	a.mu.Lock()
	_, had := a.models[ref]
	if n == nil || n.Deleting {
		delete(a.models, ref)
	} else {
		a.models[ref] = n
	}
	a.mu.Unlock()
	if had || n != nil {
		a.onChange()
	}
}

func (a *AttachmentCache) remove(obj any) {
	if gone, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
		obj = gone.Obj
	}
	o, ok := obj.(client.Object)
	if !ok {
		return
	}
	a.mu.Lock()
	delete(a.models, kube.NetworkRefOf(network.KindNetworkAttachmentDefinition, o))
	a.mu.Unlock()
	a.onChange()
}
