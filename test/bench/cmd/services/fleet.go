// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/patchbay-cni/patchbay/api/v1"
	"github.com/patchbay-cni/patchbay/test/apitest"
	"github.com/patchbay-cni/patchbay/test/bench/measure"
	"github.com/patchbay-cni/patchbay/test/services/scene"
)

// patience bounds what takes seconds.
const patience = 5 * time.Minute

// fleet is a namespace full of Services and Pods.
type fleet struct {
	o    options
	env  *apitest.Env
	ns   string
	net  *v1.ClusterNetwork
	pods []*corev1.Pod
}

func machine() string { return measure.Machine() }

// newFleet stores all objects; every Pod is ready.
func newFleet(ctx context.Context, env *apitest.Env, o options) (*fleet, error) {
	f := &fleet{o: o, env: env, ns: apitest.Name("fleet"), net: scene.Network("fleet"), pods: make([]*corev1.Pod, o.services*o.each)}
	if err := env.Client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: f.ns}}); err != nil {
		return nil, fmt.Errorf("create namespace: %w", err)
	}
	if err := env.Client.Create(ctx, f.net); err != nil {
		return nil, fmt.Errorf("create network: %w", err)
	}
	all, ctx := errgroup.WithContext(ctx)
	all.SetLimit(o.workers)
	for i := range o.services {
		app := fmt.Sprintf("app-%d", i)
		all.Go(func() error {
			if err := env.Client.Create(ctx, scene.Service(f.ns, app, app, f.net.Name)); err != nil {
				return fmt.Errorf("create Service: %w", err)
			}
			for n := range o.each {
				at := i*o.each + n
				f.pods[at] = scene.Pod(f.ns, fmt.Sprintf("%s-%d", app, n), app)
				address := fmt.Sprintf("10.%d.%d.%d/8", at>>16, at>>8&255, at&255)
				if err := scene.Add(ctx, env.Client, f.pods[at], f.net, address, "", true); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return f, all.Wait()
}

// resync starts a controller and waits until all Services are as they should be.
func (f *fleet) resync(ctx context.Context, program, start string, out io.Writer) error {
	began := time.Now()
	c, err := scene.Run(ctx, f.env, program)
	if err != nil {
		return err
	}
	filled := time.Since(began)
	err = f.settle(ctx, c)
	took := time.Since(began)
	if err == nil {
		err = f.rest(ctx) // what is to be looked at again in a moment is not in its queue
	}
	now, peak, errMemory := c.Memory()
	writes, errWrites := c.Writes(ctx)
	if err := errors.Join(err, errMemory, errWrites, c.Stop(context.WithoutCancel(ctx), patience)); err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%s: caches filled after %.1f s, all endpoints right after %.1f s, %.0f writes; memory %d MiB, at its peak %d MiB\n",
		start, filled.Seconds(), took.Seconds(), writes, now>>20, peak>>20)
	return err
}

// settle waits until the controller has looked at every Service and has no work left.
func (f *fleet) settle(ctx context.Context, c *scene.Controller) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		done, err := c.Metric(ctx, `controller_runtime_reconcile_total{controller="services",result="success"}`)
		waiting, errDepth := c.Metric(ctx, `workqueue_depth{controller="services"`)
		busy, errBusy := c.Metric(ctx, `controller_runtime_active_workers{controller="services"}`)
		if err := errors.Join(err, errDepth, errBusy); err != nil {
			return err
		}
		if done >= float64(f.o.services) && waiting+busy == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("await the controller's rest: %.0f looks done, %.0f waiting: %w\n%s", done, waiting, ctx.Err(), c.Log())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// check compares what is stored with what should be.
func (f *fleet) check(ctx context.Context) error {
	return scene.Check(ctx, f.env.Client, f.ns, f.net)
}
