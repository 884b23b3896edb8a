// SPDX-License-Identifier: Apache-2.0

package works

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	discoveryclient "k8s.io/client-go/kubernetes/typed/discovery/v1"
	storagev1client "k8s.io/client-go/kubernetes/typed/storage/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/internal/relist"
	"github.com/patchbay-cni/patchbay/placement/agent/internal/endpoints"
	"github.com/patchbay-cni/patchbay/placement/agent/internal/objectwatcher"
	"github.com/patchbay-cni/patchbay/placement/agent/internal/podindex"
	"github.com/patchbay-cni/patchbay/placement/agent/internal/records"
	"github.com/patchbay-cni/patchbay/placement/agent/internal/volumes"
	"github.com/patchbay-cni/patchbay/placement/internal/debugpath"
)

// Config configures an agent.
type Config struct {
	// Cluster is the name of the Cluster at the hub.
	Cluster string
	// Hub is the hub's API server, with this agent's credentials.
	Hub *rest.Config
	// Local is the cluster's own API server.
	Local *rest.Config
	// Identity names this process in the heartbeat: the Pod's name.
	Identity string
	// Account is the agent's ServiceAccount in Guard.Namespace, the subject of its RoleBindings.
	Account string
	// Version of the agent.
	Version string
	// Guard has the rules of the cluster's admin.
	Guard Guard
	// RefusedAfter is after how long the agent reports replicas that the cluster does not run; default: 2 minutes.
	RefusedAfter time.Duration
	// HideRoom keeps the agent from reporting what nodes have free.
	HideRoom bool
	// ReconcileTimeout bounds each reconciliation, because an API server may never answer; default: 2
	// minutes.
	ReconcileTimeout time.Duration
}

// Settings of the queue of Works.
const (
	minRetryDelay, maxRetryDelay = 100 * time.Millisecond, time.Minute
	defaultReconcileTimeout      = 2 * time.Minute
	workerCount                  = 4
)

// Agent is the agent of one cluster.
type Agent struct {
	config     Config
	queue      workqueue.TypedRateLimitingInterface[string]
	hub        *hubClient
	reconciler *workReconciler
	stats      *clusterStats
	discovery  discovery.DiscoveryInterface
	informers  []toolscache.SharedIndexInformer
	dating     *reportDating
	debug      *debugAccess
}

// New makes an agent without starting it. Neither API server has to be reachable.
func New(config Config) (*Agent, error) {
	a := &Agent{config: config, queue: workqueue.NewTypedRateLimitingQueue(
		workqueue.NewTypedItemExponentialFailureRateLimiter[string](minRetryDelay, maxRetryDelay))}
	if a.config.ReconcileTimeout == 0 {
		a.config.ReconcileTimeout = defaultReconcileTimeout
	}
	a.config.RefusedAfter = cmp.Or(a.config.RefusedAfter, DefaultRefusedAfter)
	var err error
	if a.hub, err = newHubClient(tuneRESTConfig(config.Hub), config.Cluster); err != nil {
		return nil, err
	}
	if err := a.connectLocal(tuneRESTConfig(config.Local)); err != nil {
		return nil, fmt.Errorf("make the cluster's client: %w", err)
	}
	return a, nil
}

// tuneRESTConfig turns off client-side rate limits, because API servers have priority and fairness, and
// makes watches recover from a restore of etcd.
func tuneRESTConfig(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.QPS = -1
	relist.WrapConfig(config)
	return config
}

// connectLocal makes the clients of the cluster, the reconciler and its informers.
func (a *Agent) connectLocal(config *rest.Config) error {
	scheme, mapper, err := schemeAndMapper()
	if err != nil {
		return err
	}
	watches := newWatchHealth(time.Now)
	config.Wrap(watches.observe)
	local, err := client.New(config, client.Options{Scheme: scheme, Mapper: mapper})
	if err != nil {
		return err
	}
	a.dating = &reportDating{
		local: local, namespace: a.config.Guard.Namespace, watches: watches, unreported: a.hub.unreported, rereadAll: a.rereadAll,
	}
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	meta, err := metadata.NewForConfig(config)
	if err != nil {
		return err
	}
	core, err := corev1client.NewForConfig(config)
	if err != nil {
		return err
	}
	storage, err := storagev1client.NewForConfig(config)
	if err != nil {
		return err
	}
	if a.discovery, err = discovery.NewDiscoveryClientForConfig(config); err != nil {
		return err
	}
	nodes := toolscache.NewSharedIndexInformer(newListWatch(core.RESTClient(), "nodes"), &corev1.Node{}, 0, toolscache.Indexers{})
	if err := nodes.SetTransform(trimNode); err != nil {
		return err
	}
	var pods *podindex.Index
	if pods, a.informers, err = podindex.New(newListWatch(core.RESTClient(), "pods"), meta, a.enqueueForOwners); err != nil {
		return err
	}
	a.informers = append(a.informers, nodes)
	namespaces := &namespaceAccess{
		client: local, minPodSecurity: a.config.Guard.PodSecurity, byNamespace: map[string]access{},
		account: types.NamespacedName{Namespace: a.config.Guard.Namespace, Name: a.config.Account},
	}
	applied := records.New(local)
	halted := newHaltedWorks(a.hub, applied)
	a.reconciler = &workReconciler{
		hub: a.hub, dynamic: objects, records: applied, halted: halted, clusterName: a.config.Cluster, pods: pods, enqueueAll: a.enqueueAll, pace: newHeartbeatPace(),
		refusedAfter: a.config.RefusedAfter,
		applier:      &objectApplier{dynamic: objects, guard: a.config.Guard, namespaces: namespaces},
		secrets:      &secretDataCache{hub: a.hub, local: local},
		volumes:      &volumes.Operator{Core: core, Storage: storage, Namespace: a.config.Guard.Namespace, Now: time.Now},
		watcher:      objectwatcher.New(meta, a.enqueueForObject, namespaces.isGone),
	}
	discovered, err := discoveryclient.NewForConfig(config)
	if err != nil {
		return err
	}
	a.reconciler.traffic = &serviceTraffic{
		slices: discovered, pods: pods, records: applied,
		watcher: objectwatcher.NewSelecting(meta, endpoints.Selector, a.enqueueForOwner, namespaces.isGone),
	}
	a.reconciler.remover = &workRemover{
		hub: a.hub, traffic: a.reconciler.traffic, records: applied, halted: halted, forget: a.reconciler.forget,
		objects: &objectRemover{dynamic: objects, discovery: a.discovery, guard: a.config.Guard, namespaces: namespaces, pods: pods},
	}
	a.debug = &debugAccess{records: applied, pods: pods, namespaces: local, services: objects.Resource(corev1.SchemeGroupVersion.WithResource("services")), readHubUID: a.hub.hubUID}
	a.stats = &clusterStats{nodes: nodes.GetStore(), pods: pods.Pods, halted: halted, cluster: a.config.Cluster, hideRoom: a.config.HideRoom}
	return nil
}

// trimNode keeps the allocatable resources of a Node, and the taints that keep Pods away. Its phase is Running if the
// Node is ready and schedulable.
func trimNode(o any) (any, error) {
	node, ok := o.(*corev1.Node)
	if !ok {
		return o, nil
	}
	trimmed := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node.Name, UID: node.UID, ResourceVersion: node.ResourceVersion}}
	trimmed.Status.Allocatable = corev1.ResourceList{}
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourcePods} {
		if q, ok := node.Status.Allocatable[name]; ok {
			trimmed.Status.Allocatable[name] = q
		}
	}
	for _, t := range node.Spec.Taints {
		if t.Effect != corev1.TaintEffectPreferNoSchedule {
			trimmed.Spec.Taints = append(trimmed.Spec.Taints, t)
		}
	}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue && !node.Spec.Unschedulable {
			trimmed.Status.Phase = corev1.NodeRunning
		}
	}
	return trimmed, nil
}

// schemeAndMapper returns the kinds that the agent reads and writes as Go types, and their resources. It
// uses no discovery, because either API server may be unreachable when the agent starts.
func schemeAndMapper() (*runtime.Scheme, meta.RESTMapper, error) {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, coordinationv1.AddToScheme, rbacv1.AddToScheme, metav1.AddMetaToScheme, v1alpha1.AddToScheme,
	} {
		if err := add(s); err != nil {
			return nil, nil, fmt.Errorf("register kinds: %w", err)
		}
	}
	m := meta.NewDefaultRESTMapper(nil)
	m.Add(corev1.SchemeGroupVersion.WithKind("Namespace"), meta.RESTScopeRoot)
	m.Add(corev1.SchemeGroupVersion.WithKind("Secret"), meta.RESTScopeNamespace)
	m.Add(rbacv1.SchemeGroupVersion.WithKind("RoleBinding"), meta.RESTScopeNamespace)
	m.Add(coordinationv1.SchemeGroupVersion.WithKind("Lease"), meta.RESTScopeNamespace)
	m.Add(v1alpha1.SchemeGroupVersion().WithKind("Work"), meta.RESTScopeNamespace)
	m.Add(v1alpha1.SchemeGroupVersion().WithKind("WorkList"), meta.RESTScopeNamespace) // a cache of one namespace looks up the list's mapping
	m.Add(v1alpha1.SchemeGroupVersion().WithKind("AppliedWork"), meta.RESTScopeRoot)
	m.Add(v1alpha1.SchemeGroupVersion().WithKind("Cluster"), meta.RESTScopeRoot)
	return s, m, nil
}

func newListWatch(core rest.Interface, resource string) toolscache.ListerWatcher {
	return toolscache.NewListWatchFromClient(core, resource, metav1.NamespaceAll, fields.Everything())
}

// batchDelay lets one reconciliation handle changes that come together.
const batchDelay = 20 * time.Millisecond

// loadRetryInterval is how often the agent reads the records while the cluster's API server is unreachable.
const loadRetryInterval = time.Second

// Run runs the agent until the context ends. It starts with the records, without waiting for the hub.
func (a *Agent) Run(ctx context.Context) error {
	ctx = logr.NewContext(ctx, logr.FromContextOrDiscard(ctx).WithValues("cluster", a.config.Cluster))
	if !a.loadRecords(ctx) {
		return nil // stopped on request
	}
	if err := a.hub.watchWorks(ctx, func(name string) {
		a.reconciler.updateHalted(ctx, name)
		a.queue.Add(name)
	}); err != nil {
		return err
	}
	var all sync.WaitGroup
	for _, informer := range a.informers {
		all.Go(func() { informer.RunWithContext(ctx) })
	}
	all.Go(func() {
		if err := a.hub.cache.Start(ctx); err != nil {
			log(ctx).Error(err, "Failed to watch Works")
		}
	})
	all.Go(func() {
		if toolscache.WaitForCacheSync(ctx.Done(), a.hub.synced) {
			a.rereadAll(ctx) // also to mark records without a Work as orphaned
			a.dating.start()
		}
	})
	all.Go(func() { a.runHeartbeat(ctx) })
	all.Go(func() { a.runClusterReport(ctx) })
	all.Go(func() {
		wait.UntilWithContext(ctx, a.reconciler.watcher.RequeueUnseen, objectwatcher.UnseenCheckInterval)
	})
	for range workerCount {
		all.Go(func() { a.runWorker(ctx) })
	}
	a.enqueueAll(ctx)
	<-ctx.Done()
	a.queue.ShutDown()
	all.Wait()
	a.reconciler.watcher.Stop()
	a.reconciler.traffic.watcher.Stop()
	return nil
}

// loadRecords reads the records, and retries until it succeeds. It returns false when the context ended
// before.
func (a *Agent) loadRecords(ctx context.Context) bool {
	return wait.PollUntilContextCancel(ctx, loadRetryInterval, true, func(ctx context.Context) (bool, error) {
		err := a.reconciler.records.Load(ctx)
		if err != nil && ctx.Err() == nil {
			log(ctx).Error(err, "Failed to read AppliedWorks; retrying")
		}
		return err == nil, nil
	}) == nil
}

// runWorker reconciles Works from the queue until that is shut down.
func (a *Agent) runWorker(ctx context.Context) {
	for {
		name, ended := a.queue.Get()
		if ended {
			return
		}
		a.processWork(ctx, name)
		a.queue.Done(name)
	}
}

// processWork reconciles a Work, and enqueues it again after an error.
func (a *Agent) processWork(ctx context.Context, name string) {
	bounded, cancel := context.WithTimeout(ctx, a.config.ReconcileTimeout)
	defer cancel()
	a.hub.unreported.begin(name)
	later, err := a.reconciler.reconcile(bounded, name)
	a.hub.unreported.end(name, err)
	if later > 0 {
		a.queue.AddAfter(name, later)
	}
	if err == nil || ctx.Err() != nil {
		a.queue.Forget(name)
		return
	}
	if !isPermanent(err) || a.queue.NumRequeues(name) == 0 {
		log(ctx).Info("Failed to reconcile a Work; retrying", "work", name, "cause", err.Error())
	}
	a.queue.AddRateLimited(name)
}

// isPermanent tells whether a user must act before a retry can succeed.
func isPermanent(err error) bool {
	var e *conditionError
	return errors.As(err, &e) || apierrors.IsForbidden(err)
}

// enqueueForObject enqueues the Work of an object.
func (a *Agent) enqueueForObject(resource schema.GroupResource, o metav1.Object) {
	key := records.ObjectKey(resource.Group, resource.Resource, o.GetNamespace(), o.GetName())
	if name, ok := a.reconciler.records.WorkForObject(key, o.GetUID()); ok {
		a.hub.unreported.add(name)
		a.queue.AddAfter(name, batchDelay)
	}
}

// enqueueForOwner enqueues the Works of the owners that an object names.
func (a *Agent) enqueueForOwner(_ schema.GroupResource, o metav1.Object) {
	for _, owner := range o.GetOwnerReferences() {
		if name, ok := a.reconciler.records.WorkForObject("", owner.UID); ok {
			a.hub.unreported.add(name)
			a.queue.AddAfter(name, batchDelay)
		}
	}
}

// enqueueForOwners enqueues the Works of a Pod or its owners.
func (a *Agent) enqueueForOwners(o metav1.Object, p *podindex.Index) {
	for _, uid := range p.OwnerChain(o) {
		if name, ok := a.reconciler.records.WorkForObject("", uid); ok {
			a.hub.unreported.add(name)
			a.queue.AddAfter(name, batchDelay)
		}
	}
}

// enqueueAll enqueues all Works and records.
func (a *Agent) enqueueAll(ctx context.Context) {
	for _, rec := range a.reconciler.records.List() {
		a.queue.Add(rec.Name)
	}
	if !a.hub.synced() {
		return
	}
	works, err := a.hub.listWorks(ctx)
	if err != nil {
		log(ctx).Error(err, "Failed to list Works")
	}
	for i := range works {
		a.queue.Add(works[i].Name)
	}
}

// rereadAll enqueues all Works and records. Until each record is reconciled, its reports may be out of date.
func (a *Agent) rereadAll(ctx context.Context) {
	for _, rec := range a.reconciler.records.List() {
		a.hub.unreported.addMissed(rec.Name)
	}
	a.enqueueAll(ctx)
}

// runHeartbeat renews the agent's Lease at the hub until the context ends. When the hub is reachable again, what
// could not be reported is reported at once.
func (a *Agent) runHeartbeat(ctx context.Context) {
	h := &heartbeat{
		client: a.hub.client, namespace: a.hub.namespace, identity: a.config.Identity, recordCount: a.reconciler.records.Count,
		reportDelay: a.dating.delay,
	}
	failed := false
	for last := time.Now(); ; {
		bounded, cancel := context.WithTimeout(ctx, heartbeatInterval)
		err := h.renew(bounded)
		cancel()
		switch {
		case err != nil && ctx.Err() == nil:
			log(ctx).V(1).Info("Failed to renew the heartbeat", "cause", err.Error())
		case err == nil && failed:
			for _, name := range a.hub.unreported.works() {
				a.queue.Forget(name)
				a.queue.Add(name)
			}
		}
		failed = err != nil
		if !a.reconciler.pace.wait(ctx, last) {
			return
		}
		last = time.Now()
	}
}

// runClusterReport reports the cluster's own status until the context ends.
func (a *Agent) runClusterReport(ctx context.Context) {
	report := &clusterReporter{hub: a.hub.client, name: a.config.Cluster, now: time.Now}
	var uid string
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		bounded, cancel := context.WithTimeout(ctx, 2*clusterReportInterval)
		defer cancel()
		var err error
		if uid == "" {
			uid, err = a.hub.hubUID(bounded)
		}
		if err == nil && a.informersSynced() {
			err = report.send(bounded, a.clusterStatus(uid))
		}
		if err != nil && ctx.Err() == nil {
			log(ctx).V(1).Info("Failed to report the status of the Cluster", "cause", err.Error())
			uid, report.lastSent = "", nil // the next hub may be another one
		}
	}, clusterReportInterval)
}

// informersSynced tells whether the statistics are complete.
func (a *Agent) informersSynced() bool {
	return !slices.ContainsFunc(a.informers, func(i toolscache.SharedIndexInformer) bool { return !i.HasSynced() })
}

// clusterStatus returns the agent's part of the Cluster's status.
func (a *Agent) clusterStatus(hubUID string) v1alpha1.ClusterStatus {
	if a.stats.versions.Kubernetes == "" {
		if v, err := a.discovery.ServerVersion(); err == nil {
			a.stats.versions = v1alpha1.Versions{Kubernetes: v.GitVersion, Agent: a.config.Version}
		}
	}
	return a.stats.status(hubUID)
}

// CheckDebug returns why users of the hub may not reach something; nil when they may.
func (a *Agent) CheckDebug(ctx context.Context, p debugpath.Placed) error {
	return a.debug.check(ctx, p)
}

// Ready tells whether the agent has read its records and all Works of the hub.
func (a *Agent) Ready() bool { return a.hub.synced() }

// log returns the agent's logger.
func log(ctx context.Context) logr.Logger { return logr.FromContextOrDiscard(ctx).WithName("agent") }
