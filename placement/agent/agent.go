// SPDX-License-Identifier: Apache-2.0

package agent

import (
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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/relist"
)

// Config is what an agent needs to know.
type Config struct {
	// Cluster is the name of the Cluster at the hub.
	Cluster string
	// Hub is the hub's API server, with this agent's credentials.
	Hub *rest.Config
	// Local is the cluster's own API server.
	Local *rest.Config
	// Identity names this process in the heartbeat: the Pod's name.
	Identity string
	// Account is the agent's ServiceAccount, in Guard.Namespace, which it gives rights.
	Account string
	// Version is the agent's.
	Version string
	// Guard is what the cluster's admin says of the hub.
	Guard Guard
	// PassTimeout bounds each look at a Work, whose requests may never be answered; two
	// minutes when it is zero.
	PassTimeout time.Duration
}

// Times of the queue of Works.
const (
	retryFirst, retryLast = 100 * time.Millisecond, time.Minute
	passTimeout           = 2 * time.Minute
	workers               = 4
)

// Agent is the agent of one cluster.
type Agent struct {
	config    Config
	queue     workqueue.TypedRateLimitingInterface[string]
	hub       *hub
	worker    *worker
	figures   *figures
	discovery discovery.DiscoveryInterface
	informers []toolscache.SharedIndexInformer
}

// New wires an agent; nothing runs yet, and neither API server need be there.
func New(config Config) (*Agent, error) {
	a := &Agent{config: config, queue: workqueue.NewTypedRateLimitingQueue(
		workqueue.NewTypedItemExponentialFailureRateLimiter[string](retryFirst, retryLast))}
	if a.config.PassTimeout == 0 {
		a.config.PassTimeout = passTimeout
	}
	var err error
	if a.hub, err = newHub(adapt(config.Hub), config.Cluster); err != nil {
		return nil, err
	}
	if err := a.connect(adapt(config.Local)); err != nil {
		return nil, fmt.Errorf("make the cluster's client: %w", err)
	}
	return a, nil
}

// adapt leaves it to the API server's priority and fairness to share itself out, and has watches
// outlive a restore of its etcd.
func adapt(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.QPS = -1
	relist.Wrap(config)
	return config
}

// connect makes the clients of the cluster, the worker, and what feeds it.
func (a *Agent) connect(config *rest.Config) error {
	scheme, mapper, err := kinds()
	if err != nil {
		return err
	}
	local, err := client.New(config, client.Options{Scheme: scheme, Mapper: mapper})
	if err != nil {
		return err
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
	if a.discovery, err = discovery.NewDiscoveryClientForConfig(config); err != nil {
		return err
	}
	nodes := toolscache.NewSharedIndexInformer(lister(core.RESTClient(), "nodes"), &corev1.Node{}, 0, toolscache.Indexers{})
	if err := nodes.SetTransform(slimNode); err != nil {
		return err
	}
	var found *pods
	if found, a.informers, err = newPods(lister(core.RESTClient(), "pods"), meta, a.owned); err != nil {
		return err
	}
	a.informers = append(a.informers, nodes)
	spaces := &namespaces{
		client: local, least: a.config.Guard.PodSecurity, known: map[string]access{},
		account: types.NamespacedName{Namespace: a.config.Guard.Namespace, Name: a.config.Account},
	}
	a.worker = &worker{
		hub: a.hub, records: newRecords(local), halt: &halt{}, cluster: a.config.Cluster, pods: found, all: a.enqueueAll,
		applier: &applier{dynamic: objects, discovery: a.discovery, guard: a.config.Guard, namespaces: spaces, pods: found},
		secrets: &secrets{hub: a.hub, local: local},
		watcher: newWatcher(meta, a.changed, spaces.gone),
	}
	a.figures = &figures{nodes: nodes.GetStore(), pods: found.pods, halt: a.worker.halt, cluster: a.config.Cluster}
	return nil
}

// kinds returns what the agent reads and writes as types, and how these are mapped to
// resources: without asking an API server, as either may be away when the agent starts.
func kinds() (*runtime.Scheme, meta.RESTMapper, error) {
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
	m.Add(v1alpha1.SchemeGroupVersion().WithKind("WorkList"), meta.RESTScopeNamespace) // a cache of one namespace asks for the list's
	m.Add(v1alpha1.SchemeGroupVersion().WithKind("AppliedWork"), meta.RESTScopeRoot)
	m.Add(v1alpha1.SchemeGroupVersion().WithKind("Cluster"), meta.RESTScopeRoot)
	return s, m, nil
}

func lister(core rest.Interface, resource string) toolscache.ListerWatcher {
	return toolscache.NewListWatchFromClient(core, resource, metav1.NamespaceAll, fields.Everything())
}

// loadRetry is how often the records are asked for while the cluster's API server is away.
const loadRetry = time.Second

// Run works until the context ends. It begins with the records: the hub need not be
// there.
func (a *Agent) Run(ctx context.Context) error {
	ctx = logr.NewContext(ctx, logr.FromContextOrDiscard(ctx).WithValues("cluster", a.config.Cluster))
	if !a.load(ctx) {
		return nil // it ends on request: that is no error
	}
	if err := a.hub.follow(ctx, func(name string) {
		a.worker.judge(ctx, name)
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
			log(ctx).Error(err, "Cannot watch Works")
		}
	})
	all.Go(func() {
		if toolscache.WaitForCacheSync(ctx.Done(), a.hub.synced) {
			a.enqueueAll(ctx) // records without a Work are orphaned
		}
	})
	all.Go(func() { a.beat(ctx) })
	all.Go(func() { a.tellCluster(ctx) })
	all.Go(func() { wait.UntilWithContext(ctx, a.worker.watcher.recheck, unseenEvery) })
	for range workers {
		all.Go(func() { a.work(ctx) })
	}
	a.enqueueAll(ctx)
	<-ctx.Done()
	a.queue.ShutDown()
	all.Wait()
	a.worker.watcher.end()
	return nil
}

// load reads the records, for as long as it takes; false tells that the context ended
// before.
func (a *Agent) load(ctx context.Context) bool {
	return wait.PollUntilContextCancel(ctx, loadRetry, true, func(ctx context.Context) (bool, error) {
		err := a.worker.records.load(ctx)
		if err != nil && ctx.Err() == nil {
			log(ctx).Error(err, "Cannot read the records; trying again")
		}
		return err == nil, nil
	}) == nil
}

// work takes Works off the queue, one after the other.
func (a *Agent) work(ctx context.Context) {
	for {
		name, ended := a.queue.Get()
		if ended {
			return
		}
		a.one(ctx, name)
		a.queue.Done(name)
	}
}

// one looks at a Work, for no longer than a pass may take: an API server that does not answer
// must not keep a worker from the other Works.
func (a *Agent) one(ctx context.Context, name string) {
	bounded, cancel := context.WithTimeout(ctx, a.config.PassTimeout)
	defer cancel()
	later, err := a.worker.reconcile(bounded, name)
	if later > 0 {
		a.queue.AddAfter(name, later)
	}
	if err == nil || ctx.Err() != nil {
		a.queue.Forget(name)
		return
	}
	if !permanent(err) || a.queue.NumRequeues(name) == 0 {
		log(ctx).Info("Cannot carry out a Work; trying again", "work", name, "cause", err.Error())
	}
	a.queue.AddRateLimited(name)
}

// permanent tells whether an error needs no prompt retry: a person must act.
func permanent(err error) bool {
	var r *refusal
	return errors.As(err, &r) || apierrors.IsForbidden(err)
}

// changed makes the Work of an object be looked at soon.
func (a *Agent) changed(key string, o metav1.Object) {
	if name, ok := a.worker.records.workOf(key, o.GetUID()); ok {
		a.queue.AddAfter(name, settleTime)
	}
}

// owned does so for the Works that a Pod, or what made it, belongs to.
func (a *Agent) owned(o metav1.Object, p *pods) {
	for _, uid := range p.roots(o) {
		if name, ok := a.worker.records.workOf("", uid); ok {
			a.queue.AddAfter(name, settleTime)
		}
	}
}

// enqueueAll makes every Work and record be looked at.
func (a *Agent) enqueueAll(ctx context.Context) {
	for _, rec := range a.worker.records.all() {
		a.queue.Add(rec.Name)
	}
	if !a.hub.synced() {
		return
	}
	works, err := a.hub.works(ctx)
	if err != nil {
		log(ctx).Error(err, "Failed to list the Works that are to be looked at again")
	}
	for i := range works {
		a.queue.Add(works[i].Name)
	}
}

// beat renews the heartbeat.
func (a *Agent) beat(ctx context.Context) {
	h := &heartbeat{client: a.hub.client, namespace: a.hub.namespace, identity: a.config.Identity, records: a.worker.records.count}
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		bounded, cancel := context.WithTimeout(ctx, heartbeatEvery)
		defer cancel()
		if err := h.beat(bounded); err != nil && ctx.Err() == nil {
			log(ctx).V(1).Info("No heartbeat", "cause", err.Error())
		}
	}, heartbeatEvery)
}

// tellCluster reports on the cluster itself.
func (a *Agent) tellCluster(ctx context.Context) {
	report := &clusterReport{hub: a.hub.client, name: a.config.Cluster}
	var uid string
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		bounded, cancel := context.WithTimeout(ctx, 2*clusterEvery)
		defer cancel()
		var err error
		if uid == "" {
			uid, err = a.hub.uid(bounded)
		}
		if err == nil && a.caught() {
			err = report.send(bounded, a.clusterStatus(uid))
		}
		if err != nil && ctx.Err() == nil {
			log(ctx).V(1).Info("Cannot report on the cluster", "cause", err.Error())
			uid, report.last = "", nil // the hub may be another one next time
		}
	}, clusterEvery)
}

// caught tells whether the figures are complete.
func (a *Agent) caught() bool {
	return !slices.ContainsFunc(a.informers, func(i toolscache.SharedIndexInformer) bool { return !i.HasSynced() })
}

func (a *Agent) clusterStatus(hubUID string) v1alpha1.ClusterStatus {
	if a.figures.versions.Kubernetes == "" {
		if v, err := a.discovery.ServerVersion(); err == nil {
			a.figures.versions = v1alpha1.Versions{Kubernetes: v.GitVersion, Agent: a.config.Version}
		}
	}
	return a.figures.status(hubUID)
}

// Ready tells whether the agent has read its records and found the hub.
func (a *Agent) Ready() bool { return a.hub.synced() }

// log names the agent's logger.
func log(ctx context.Context) logr.Logger { return logr.FromContextOrDiscard(ctx).WithName("agent") }
