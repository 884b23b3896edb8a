// SPDX-License-Identifier: Apache-2.0

package networkcache

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
	"github.com/patchbay-cni/patchbay/daemon/internal/kubeclient"
	"github.com/patchbay-cni/patchbay/internal/kube"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/netwatcher"
)

// attachmentProbeInterval is the mean time between two checks whether the cluster has the kind
// NetworkAttachmentDefinition.
const attachmentProbeInterval = time.Minute

// Attachments has the models of the NetworkAttachmentDefinitions that need a link on the host.
// Multus defines the kind, so that a cluster may lack it.
type Attachments struct {
	conn     *kubeclient.Connection
	onChange func()
	interval time.Duration

	mu        sync.Mutex // guards the fields below
	synced    bool
	forbidden bool // the API server forbids the daemon to read them
	models    map[network.Ref]*network.Network
}

// NewAttachments returns empty Attachments; Run fills them. It calls changed after each change;
// changed must not block.
func NewAttachments(conn *kubeclient.Connection, changed func()) *Attachments {
	return &Attachments{conn: conn, onChange: changed, interval: attachmentProbeInterval, models: map[network.Ref]*network.Network{}}
}

// List returns the models. The error wraps attach.ErrTryAgain before they are read, and
// netwatcher.ErrNetworksIncomplete when the API server forbids the daemon to read them: the
// caller must then keep links that no network needs.
func (a *Attachments) List() ([]*network.Network, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.synced {
		return nil, fmt.Errorf("list NetworkAttachmentDefinitions: %w: they are not read yet", attach.ErrTryAgain)
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

// Run waits until the cluster has the kind, and then watches until ctx ends.
func (a *Attachments) Run(ctx context.Context) error {
	log := logr.FromContextOrDiscard(ctx)
	for logged := false; ; logged = true {
		delay, err := a.interval/2+rand.N(a.interval), a.probeKind(ctx)
		switch {
		case err == nil:
			return a.watch(ctx)
		case meta.IsNoMatchError(err), apierrors.IsNotFound(err):
			a.setSynced(false)
		case apierrors.IsForbidden(err):
			if !logged {
				log.Error(err, "Failed to read NetworkAttachmentDefinitions, which get no links")
			}
			a.setSynced(true)
		default:
			delay = kubeclient.MinBackoff + rand.N(2*time.Second)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(delay):
		}
	}
}

// probeKind returns the error of a list of the kind, which is nil if the cluster has the kind.
func (a *Attachments) probeKind(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, kubeclient.RequestTimeout)
	defer cancel()
	list := &unstructured.UnstructuredList{}
	list.SetAPIVersion(kube.NetworkAttachmentDefinitionVersion)
	list.SetKind(network.KindNetworkAttachmentDefinition + "List")
	return a.conn.Direct.List(ctx, list, client.Limit(1))
}

// watch keeps the models up to date until ctx ends.
func (a *Attachments) watch(ctx context.Context) error {
	obj := &unstructured.Unstructured{}
	obj.SetAPIVersion(kube.NetworkAttachmentDefinitionVersion)
	obj.SetKind(network.KindNetworkAttachmentDefinition)
	i, err := a.conn.Cache.GetInformer(ctx, obj, cache.BlockUntilSynced(false))
	if err != nil {
		return kubeclient.WatchError(ctx, "NetworkAttachmentDefinitions", err)
	}
	log := logr.FromContextOrDiscard(ctx)
	registration, err := i.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { a.upsert(log, obj) },
		UpdateFunc: func(_, obj any) { a.upsert(log, obj) },
		DeleteFunc: a.remove,
	})
	if err != nil {
		return kubeclient.WatchError(ctx, "NetworkAttachmentDefinitions", err)
	}
	if toolscache.WaitForCacheSync(ctx.Done(), registration.HasSynced) {
		a.setSynced(false)
	}
	<-ctx.Done()
	return nil
}

// setSynced records that all were read, or that the API server forbids to read them.
func (a *Attachments) setSynced(forbidden bool) {
	a.mu.Lock()
	changed := !a.synced || a.forbidden != forbidden
	a.synced, a.forbidden = true, forbidden
	a.mu.Unlock()
	if changed {
		a.onChange()
	}
}

// upsert stores the model of one. An invalid one gets no link.
func (a *Attachments) upsert(log logr.Logger, obj any) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return
	}
	config, _, _ := unstructured.NestedString(u.Object, "spec", "config")
	n, err := network.FromNetworkAttachmentDefinition(&metav1.ObjectMeta{
		Namespace: u.GetNamespace(), Name: u.GetName(), UID: u.GetUID(), Generation: u.GetGeneration(),
		CreationTimestamp: u.GetCreationTimestamp(), DeletionTimestamp: u.GetDeletionTimestamp(),
	}, config)
	ref := kube.NetworkRefOf(network.KindNetworkAttachmentDefinition, u)
	if err != nil {
		log.Info("NetworkAttachmentDefinition is invalid and gets no link", "network", ref.String(), "error", err.Error())
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

// remove deletes the model of one.
func (a *Attachments) remove(obj any) {
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
