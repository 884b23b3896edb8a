// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/wait"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

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
