// SPDX-License-Identifier: Apache-2.0

package clusterranges

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/kube"
	"github.com/patchbay-cni/patchbay/internal/network"
)

const (
	// debounceInterval is how long changes are collected: many nodes of a cluster may start at
	// once.
	debounceInterval = 200 * time.Millisecond
	// discoveryRetryInterval is the delay between tries while the API server is unreachable.
	discoveryRetryInterval = time.Second
)

// ErrNotSynced is returned until the ranges have been read.
var ErrNotSynced = errors.New("the controller has just started and is reading which addresses the cluster uses")

// Watcher watches the ranges of the cluster, in every replica. It is safe for concurrent use.
type Watcher struct {
	cfg            *rest.Config
	extraPodRanges []netip.Prefix
	log            logr.Logger
	// dirty and changed hold a value when there is a change to process.
	dirty, changed chan struct{}

	mu      sync.Mutex
	current *network.ClusterRanges // nil until all objects were read once
}

// New returns a Watcher for a manager to start. extraPodRanges are ranges of Pods that no
// object of the cluster contains.
func New(cfg *rest.Config, extraPodRanges []netip.Prefix, log logr.Logger) *Watcher {
	return &Watcher{cfg: cfg, extraPodRanges: extraPodRanges, log: log, dirty: make(chan struct{}, 1), changed: make(chan struct{}, 1)}
}

// Get returns the ranges, or ErrNotSynced.
func (w *Watcher) Get() (*network.ClusterRanges, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.current == nil {
		return nil, ErrNotSynced
	}
	return w.current, nil
}

// Changed receives a value after changes. It has one reader.
func (w *Watcher) Changed() <-chan struct{} { return w.changed }

// NeedLeaderElection implements manager.LeaderElectionRunnable: every replica answers the API
// server.
func (w *Watcher) NeedLeaderElection() bool { return false }

// Start watches until ctx ends.
func (w *Watcher) Start(ctx context.Context) error {
	kinds, err := w.watchedKinds(ctx)
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return err
	}
	all, err := newCache(w.cfg)
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		if err := all.Start(ctx); err != nil && ctx.Err() == nil {
			w.log.Error(err, "Failed to watch which addresses the cluster uses")
		}
	})
	for _, obj := range kinds {
		informer, err := all.GetInformer(ctx, obj, cache.BlockUntilSynced(false))
		if err != nil {
			return fmt.Errorf("watch %T: %w", obj, err)
		}
		if _, err := informer.AddEventHandler(w.eventHandler()); err != nil {
			return fmt.Errorf("watch %T: %w", obj, err)
		}
	}
	if !all.WaitForCacheSync(ctx) {
		return nil
	}
	w.updateOnChange(ctx, all, len(kinds) > baseKinds)
	return nil
}

// watchedKinds returns the kinds to watch. ServiceCIDRs are served from Kubernetes 1.33 on.
func (w *Watcher) watchedKinds(ctx context.Context) ([]client.Object, error) {
	kinds := []client.Object{&corev1.Node{}, &v1.NodeNetwork{}, &corev1.Service{}, &discoveryv1.EndpointSlice{}}
	d, err := discovery.NewDiscoveryClientForConfig(w.cfg)
	if err != nil {
		return nil, fmt.Errorf("make discovery client: %w", err)
	}
	for {
		list := &metav1.APIResourceList{}
		err := d.RESTClient().Get().AbsPath("/apis", networkingv1.SchemeGroupVersion.String()).Do(ctx).Into(list)
		switch {
		case apierrors.IsNotFound(err):
			return kinds, nil
		case err == nil:
			for _, r := range list.APIResources {
				if r.Name == "servicecidrs" {
					kinds = append(kinds, &networkingv1.ServiceCIDR{})
				}
			}
			return kinds, nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		w.log.Error(err, "Failed to discover whether the API server serves ServiceCIDRs")
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(discoveryRetryInterval):
		}
	}
}

// baseKinds is the number of kinds that every Kubernetes serves.
const baseKinds = 4

// eventHandler marks the ranges dirty when an object differs after stripping: kubelets update Nodes
// all the time.
func (w *Watcher) eventHandler() toolscache.ResourceEventHandler {
	markDirty := func(any) { notify(w.dirty) }
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc: markDirty, DeleteFunc: markDirty, UpdateFunc: func(before, after any) {
			if !equalIgnoringVersion(before, after) {
				notify(w.dirty)
			}
		},
	}
}

// equalIgnoringVersion compares two stripped objects apart from their resourceVersions.
func equalIgnoringVersion(before, after any) bool {
	b, okB := before.(client.Object)
	a, okA := after.(client.Object)
	if !okA || !okB {
		return false
	}
	b, okB = b.DeepCopyObject().(client.Object)
	if okB {
		b.SetResourceVersion(a.GetResourceVersion())
	}
	return okB && equality.Semantic.DeepEqual(b, a)
}

// updateOnChange computes the ranges again after each change.
func (w *Watcher) updateOnChange(ctx context.Context, all client.Reader, serviceCIDRs bool) {
	for {
		if err := w.update(ctx, all, serviceCIDRs); err != nil && ctx.Err() == nil {
			w.log.Error(err, "Failed to read which addresses the cluster uses")
		}
		select {
		case <-ctx.Done():
			return
		case <-w.dirty:
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(debounceInterval):
		}
	}
}

// update computes the ranges from the caches.
func (w *Watcher) update(ctx context.Context, all client.Reader, serviceCIDRs bool) error {
	s := snapshot{extraPodRanges: w.extraPodRanges}
	var (
		nodes        corev1.NodeList
		nodeNetworks v1.NodeNetworkList
		services     corev1.ServiceList
		cidrs        networkingv1.ServiceCIDRList
		apiServers   discoveryv1.EndpointSliceList
	)
	lists := []client.ObjectList{&nodes, &nodeNetworks, &services, &apiServers}
	if serviceCIDRs {
		lists = append(lists, &cidrs)
	}
	for _, list := range lists {
		if err := all.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return fmt.Errorf("list cached %T: %w", list, err)
		}
	}
	s.nodes, s.nodeNetworks, s.services = nodes.Items, nodeNetworks.Items, services.Items
	s.serviceCIDRs, s.apiServers = cidrs.Items, apiServers.Items
	found := s.collect()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.current == nil || !w.current.Equal(found) {
		w.current = found
		notify(w.changed)
	}
	return nil
}

func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// newCache returns a cache of the fields that the ranges are computed from.
func newCache(cfg *rest.Config) (cache.Cache, error) {
	scheme, err := kube.NewScheme()
	if err != nil {
		return nil, err
	}
	if err := networkingv1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("register kinds: %w", err)
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Service"), meta.RESTScopeNamespace)
	mapper.Add(discoveryv1.SchemeGroupVersion.WithKind("EndpointSlice"), meta.RESTScopeNamespace)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Node"), meta.RESTScopeRoot)
	mapper.Add(v1.SchemeGroupVersion().WithKind("NodeNetwork"), meta.RESTScopeRoot)
	mapper.Add(networkingv1.SchemeGroupVersion.WithKind("ServiceCIDR"), meta.RESTScopeRoot)
	const apiServer = "kubernetes"
	inDefault := fields.OneTermEqualSelector("metadata.namespace", metav1.NamespaceDefault)
	c, err := cache.New(cfg, cache.Options{
		Scheme: scheme, Mapper: mapper, DefaultTransform: kube.StripUnusedFields,
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Node{}:    {Transform: slimNode},
			&v1.NodeNetwork{}: {Transform: kube.StripNodeNetwork},
			&corev1.Service{}: {Field: fields.AndSelectors(inDefault, fields.OneTermEqualSelector("metadata.name", apiServer))},
			&discoveryv1.EndpointSlice{}: {
				Field: inDefault, Label: labels.SelectorFromSet(labels.Set{discoveryv1.LabelServiceName: apiServer}),
			},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("make cache of the cluster's addresses: %w", err)
	}
	return c, nil
}

// slimNode keeps the addresses of a Node and of its Pods.
func slimNode(obj any) (any, error) {
	node, ok := obj.(*corev1.Node)
	if !ok {
		return obj, nil
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: node.Name, UID: node.UID, ResourceVersion: node.ResourceVersion},
		Spec:       corev1.NodeSpec{PodCIDRs: node.Spec.PodCIDRs},
		Status:     corev1.NodeStatus{Addresses: node.Status.Addresses},
	}, nil
}
