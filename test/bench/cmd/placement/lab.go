// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/test/lab/process"
	"github.com/patchbay-cni/patchbay/test/placement/bed"
)

// lab is a bed with hub and agents.
type lab struct {
	options

	out       io.Writer
	bed       *bed.Bed
	names     []string // of the clusters
	hub       process.ID
	agents    []process.ID
	workCache cache.Cache // asking the hub again and again would cost it more than they do
}

// start starts the hub, all agents, and a cache of Works.
func (l *lab) start(ctx context.Context) (err error) {
	if l.hub, err = l.bed.StartHub(ctx); err != nil {
		return err
	}
	l.agents = make([]process.ID, len(l.names))
	var g errgroup.Group
	for i, name := range l.names {
		g.Go(func() (err error) {
			if err := l.bed.CreateCluster(ctx, name, v1alpha1.ClusterSpec{}); err != nil {
				return err
			}
			l.agents[i], err = l.bed.StartAgent(ctx, name)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	l.workCache, err = cache.New(l.bed.Hub.Config, cache.Options{Scheme: bed.Scheme(), DefaultTransform: trimWork})
	if err != nil {
		return fmt.Errorf("make cache: %w", err)
	}
	if _, err := l.workCache.GetInformer(ctx, &v1alpha1.Work{}, cache.BlockUntilSynced(false)); err != nil {
		return fmt.Errorf("watch Works: %w", err)
	}
	go func() { _ = l.workCache.Start(ctx) }() // it says why in WaitForCacheSync
	if !l.workCache.WaitForCacheSync(ctx) {
		return fmt.Errorf("watch Works: %w", ctx.Err())
	}
	return nil
}

// trimWork keeps of a Work what says whether it has arrived.
func trimWork(o any) (any, error) {
	if w, ok := o.(*v1alpha1.Work); ok {
		w.ManagedFields, w.Spec.Manifests, w.Status.Manifests = nil, nil, nil
	}
	return o, nil
}

func (l *lab) list(ctx context.Context, works *v1alpha1.WorkList) error {
	if err := l.workCache.List(ctx, works, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list Works: %w", err)
	}
	return nil
}

// measure runs all parts and prints the figures.
func (l *lab) measure(ctx context.Context) error {
	for _, part := range []func(context.Context) error{
		func(ctx context.Context) error { return l.measurePropagation(ctx, "no other Works") },
		func(ctx context.Context) error { return l.createObjects(ctx, "idle", l.idle, l.names[:1]) },
		func(ctx context.Context) error {
			return l.reportMemory(ctx, fmt.Sprintf("agent with %d Works", l.idle), l.agents[0])
		},
		func(ctx context.Context) error {
			return l.createObjects(ctx, "busy", l.works-l.idle, l.names[1:])
		},
		l.countIdleWrites,
		func(ctx context.Context) error {
			return l.reportMemory(ctx, fmt.Sprintf("hub with %d Works", l.works), l.hub)
		},
		func(ctx context.Context) error {
			return l.measurePropagation(ctx, fmt.Sprintf("%d other Works", l.works))
		},
		l.restartHub,
		func(ctx context.Context) error { return l.reportMemory(ctx, "hub started anew with as many", l.hub) },
	} {
		if err := part(ctx); err != nil {
			return err
		}
	}
	return nil
}

// createObjects makes that many objects, each in one of the clusters, waits until all have
// arrived, and prints how long that took.
func (l *lab) createObjects(ctx context.Context, prefix string, n int, clusters []string) error {
	const parallel = 8
	begun := time.Now()
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	for i := range n {
		g.Go(func() error {
			at := i % len(clusters)
			return l.bed.Hub.Client.Create(gctx, configMap(fmt.Sprintf("%s-%d", prefix, i), strconv.Itoa(i), clusters[at:at+1]))
		})
	}
	if err := g.Wait(); err != nil {
		return fmt.Errorf("create objects: %w", err)
	}
	created := time.Since(begun)
	if err := l.awaitArrival(ctx, prefix, n); err != nil {
		return err
	}
	took := time.Since(begun)
	_, err := fmt.Fprintf(l.out, "%d objects made within %.0f s, in clusters and reported after %.0f s (%.0f a second)\n",
		n, created.Seconds(), took.Seconds(), float64(n)/took.Seconds())
	return err
}

// awaitArrival waits until all objects are reported to be in their clusters.
func (l *lab) awaitArrival(ctx context.Context, prefix string, n int) error {
	for {
		var list v1alpha1.WorkList
		if err := l.list(ctx, &list); err != nil {
			return err
		}
		done := 0
		for i := range list.Items {
			w := &list.Items[i]
			if w.Status.Revision == w.Spec.Revision && strings.HasPrefix(w.Spec.Source.Name, prefix+"-") {
				done++
			}
		}
		if done == n {
			return nil
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return fmt.Errorf("await %d objects, %d are there: %w", n, done, ctx.Err())
		}
	}
}

// countIdleWrites counts what is written at the hub and in the clusters in a while of quiet,
// by their audit logs. Leases are not in these: heartbeats are meant to go on.
func (l *lab) countIdleWrites(ctx context.Context) error {
	planes := []*bed.Plane{l.bed.Hub}
	for _, name := range l.names {
		planes = append(planes, l.bed.Clusters[name].Plane)
	}
	logs := make([]*bed.AuditReader, len(planes))
	for i, p := range planes {
		var err error
		if logs[i], err = p.AuditLog(); err != nil {
			return err
		}
	}
	begun := time.Now()
	for window := l.quietPeriod / 6; ; { // what the clusters have reported is written yet
		writes, err := writesDuring(ctx, logs, window)
		if err != nil {
			return err
		}
		if len(writes) == 0 {
			break
		}
	}
	after := time.Since(begun)
	writes, err := writesDuring(ctx, logs, l.quietPeriod)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(l.out, "settled after %.0f s; %d writes at the hub and in %d clusters in the %s after that, heartbeats aside\n",
		after.Seconds(), len(writes), len(l.names), l.quietPeriod); err != nil {
		return err
	}
	for _, w := range writes[:min(len(writes), 20)] {
		if _, err := fmt.Fprintln(l.out, " ", w); err != nil {
			return err
		}
	}
	return nil
}

// writesDuring is what the logs have after a while.
func writesDuring(ctx context.Context, logs []*bed.AuditReader, while time.Duration) (all []bed.Write, err error) {
	if err := sleepContext(ctx, while); err != nil {
		return nil, err
	}
	for _, log := range logs {
		writes, err := log.Writes()
		if err != nil {
			return nil, err
		}
		all = append(all, writes...)
	}
	return all, nil
}

// restartHub kills the hub and starts it again.
func (l *lab) restartHub(ctx context.Context) error {
	if err := l.hub.Kill(ctx); err != nil {
		return fmt.Errorf("kill the hub: %w", err)
	}
	var err error
	l.hub, err = l.bed.StartHub(ctx)
	return err
}

// idlePeriod is how long a process is left alone before its memory is read.
const idlePeriod = 30 * time.Second

// reportMemory prints the memory of a process that was left alone.
func (l *lab) reportMemory(ctx context.Context, name string, id process.ID) error {
	if err := sleepContext(ctx, idlePeriod); err != nil {
		return err
	}
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", id.PID))
	if err != nil {
		return fmt.Errorf("read memory of the %s: %w", name, err)
	}
	for line := range bytes.Lines(raw) {
		if rest, ok := bytes.CutPrefix(line, []byte("VmRSS:")); ok {
			kib, err := strconv.Atoi(string(bytes.Fields(rest)[0]))
			if err != nil {
				return fmt.Errorf("read memory of the %s: %w", name, err)
			}
			_, err = fmt.Fprintf(l.out, "%s: %.0f MiB resident at rest\n", name, float64(kib)/1024)
			return err
		}
	}
	return fmt.Errorf("read memory of the %s: process %d has none", name, id.PID)
}

func sleepContext(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
