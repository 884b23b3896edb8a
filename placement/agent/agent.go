// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"

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

func lister(core rest.Interface, resource string) toolscache.ListerWatcher {
	return toolscache.NewListWatchFromClient(core, resource, metav1.NamespaceAll, fields.Everything())
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

// log names the agent's logger.
func log(ctx context.Context) logr.Logger { return logr.FromContextOrDiscard(ctx).WithName("agent") }
