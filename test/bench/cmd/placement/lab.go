// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
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

	out    io.Writer
	bed    *bed.Bed
	names  []string // of the clusters
	hub    process.ID
	agents []process.ID
	works  cache.Cache // asking the hub again and again would cost it more than they do
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
			if err := l.bed.Accept(ctx, name, v1alpha1.ClusterSpec{}); err != nil {
				return err
			}
			l.agents[i], err = l.bed.StartAgent(ctx, name)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	l.works, err = cache.New(l.bed.Hub.Config, cache.Options{Scheme: bed.Scheme(), DefaultTransform: slim})
	if err != nil {
		return fmt.Errorf("make cache: %w", err)
	}
	if _, err := l.works.GetInformer(ctx, &v1alpha1.Work{}, cache.BlockUntilSynced(false)); err != nil {
		return fmt.Errorf("watch Works: %w", err)
	}
	go func() { _ = l.works.Start(ctx) }() // it says why in WaitForCacheSync
	if !l.works.WaitForCacheSync(ctx) {
		return fmt.Errorf("watch Works: %w", ctx.Err())
	}
	return nil
}

// slim keeps of a Work what says whether it has arrived.
func slim(o any) (any, error) {
	if w, ok := o.(*v1alpha1.Work); ok {
		w.ManagedFields, w.Spec.Manifests, w.Status.Manifests = nil, nil, nil
	}
	return o, nil
}

func (l *lab) list(ctx context.Context, works *v1alpha1.WorkList) error {
	if err := l.works.List(ctx, works, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list Works: %w", err)
	}
	return nil
}

// measure runs all parts and prints the figures.
func (l *lab) measure(ctx context.Context) error {
	for _, part := range []func(context.Context) error{
		func(ctx context.Context) error { return l.spread(ctx, "no other Works") },
		func(ctx context.Context) error { return l.fill(ctx, "idle", l.idle, l.names[:1]) },
		func(ctx context.Context) error {
			return l.resident(ctx, fmt.Sprintf("agent with %d Works", l.idle), l.agents[0])
		},
		func(ctx context.Context) error { return l.fill(ctx, "busy", l.options.works-l.idle, l.names[1:]) },
		l.settled,
		func(ctx context.Context) error {
			return l.resident(ctx, fmt.Sprintf("hub with %d Works", l.options.works), l.hub)
		},
		func(ctx context.Context) error {
			return l.spread(ctx, fmt.Sprintf("%d other Works", l.options.works))
		},
		l.restart,
		func(ctx context.Context) error { return l.resident(ctx, "hub started anew with as many", l.hub) },
	} {
		if err := part(ctx); err != nil {
			return err
		}
	}
	return nil
}

// restart kills the hub and starts it again.
func (l *lab) restart(ctx context.Context) error {
	if err := l.hub.Kill(ctx); err != nil {
		return fmt.Errorf("kill the hub: %w", err)
	}
	var err error
	l.hub, err = l.bed.StartHub(ctx)
	return err
}

// rest is how long a process is left alone before its memory is read.
const rest = 30 * time.Second
