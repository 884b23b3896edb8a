// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/test/apitest"
	"github.com/patchbay-cni/patchbay/test/bench/measure"
	"github.com/patchbay-cni/patchbay/test/services/scene"
)

// waitTimeout bounds what takes seconds.
const waitTimeout = 5 * time.Minute

// fleet is a namespace full of Services and Pods.
type fleet struct {
	options options
	env     *apitest.Env
	ns      string
	net     *v1.ClusterNetwork
	pods    []*corev1.Pod
}

func machine() string { return measure.Machine() }

// newFleet stores all objects; every Pod is ready.
func newFleet(ctx context.Context, env *apitest.Env, o options) (*fleet, error) {
	f := &fleet{options: o, env: env, ns: apitest.Name("fleet"), net: scene.Network("fleet"), pods: make([]*corev1.Pod, o.services*o.podsPerService)}
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
			for n := range o.podsPerService {
				at := i*o.podsPerService + n
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

// measure runs all parts one after the other, and prints each as soon as it is known.
func (f *fleet) measure(ctx context.Context, program string, out io.Writer) error {
	fmt.Fprintf(out, "Services on a network: %d with %d Pods each, the controller as a process of its own\n%s\n", f.options.services, f.options.podsPerService, machine())
	for _, start := range []string{"from nothing", "after a restart"} {
		if err := f.resync(ctx, program, start, out); err != nil {
			return err
		}
	}
	c, err := scene.Run(ctx, f.env, program)
	if err != nil {
		return err
	}
	err = f.settle(ctx, c)
	if err == nil {
		err = f.measureReadiness(ctx, c, out)
	}
	if err == nil {
		err = f.measureFlapping(ctx, c, out)
	}
	return errors.Join(err, c.Kill(context.WithoutCancel(ctx)))
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
		err = f.awaitConsistent(ctx) // what is to be looked at again in a moment is not in its queue
	}
	now, peak, errMemory := c.Memory()
	writes, errWrites := c.Writes(ctx)
	if err := errors.Join(err, errMemory, errWrites, c.Stop(context.WithoutCancel(ctx), waitTimeout)); err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%s: caches filled after %.1f s, all endpoints right after %.1f s, %.0f writes; memory %d MiB, at its peak %d MiB\n",
		start, filled.Seconds(), took.Seconds(), writes, now>>20, peak>>20)
	return err
}

// settle waits until the controller has looked at every Service and has no work left.
func (f *fleet) settle(ctx context.Context, c *scene.Controller) error {
	ctx, cancel := context.WithTimeout(ctx, waitTimeout)
	defer cancel()
	for {
		done, err := c.Metric(ctx, `controller_runtime_reconcile_total{controller="services",result="success"}`)
		waiting, errDepth := c.Metric(ctx, `workqueue_depth{controller="services"`)
		busy, errBusy := c.Metric(ctx, `controller_runtime_active_workers{controller="services"}`)
		if err := errors.Join(err, errDepth, errBusy); err != nil {
			return err
		}
		if done >= float64(f.options.services) && waiting+busy == 0 {
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

// measureReadiness makes Pods ready one at a time and watches for them in the slices, as
// kube-proxies and DNS servers do.
func (f *fleet) measureReadiness(ctx context.Context, c *scene.Controller, out io.Writer) error {
	chosen := rand.Perm(len(f.pods))[:min(f.options.samples, len(f.pods))]
	for _, i := range chosen {
		if err := scene.SetReady(ctx, f.env.Client, f.pods[i], false); err != nil {
			return err
		}
	}
	if err := f.awaitConsistent(ctx); err != nil {
		return err
	}
	w := &sliceWatcher{fleet: f}
	if err := w.open(ctx); err != nil {
		return err
	}
	defer func() { w.current.Stop() }()
	before, err := c.Writes(ctx)
	if err != nil {
		return err
	}
	var took []time.Duration
	for _, i := range chosen {
		began := time.Now()
		if err := scene.SetReady(ctx, f.env.Client, f.pods[i], true); err != nil {
			return err
		}
		if err := w.await(ctx, f.pods[i]); err != nil {
			return err
		}
		took = append(took, time.Since(began))
	}
	if err := f.awaitConsistent(ctx); err != nil {
		return err
	}
	after, err := c.Writes(ctx)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "one Pod turns ready, %d times: seen in its slice after %.0f ms (p50), %.0f ms (p99), %.0f ms (most), the Pod's own write included; %.2f writes each\n",
		len(took), measure.Millis(measure.Quantile(took, 0.5)), measure.Millis(measure.Quantile(took, 0.99)), measure.Millis(slices.Max(took)), (after-before)/float64(len(took)))
	return err
}

// sliceWatcher watches the slices, and again when the API server ends that: what is there
// by then comes first.
type sliceWatcher struct {
	*fleet

	current watch.Interface
}

func (w *sliceWatcher) open(ctx context.Context) (err error) {
	if w.current, err = w.env.Client.Watch(ctx, &discoveryv1.EndpointSliceList{}, client.InNamespace(w.ns)); err != nil {
		return fmt.Errorf("watch slices: %w", err)
	}
	return nil
}

// await waits until the watch shows a Pod ready.
func (w *sliceWatcher) await(ctx context.Context, pod *corev1.Pod) error {
	for limit := time.After(waitTimeout); ; {
		select {
		case e, ok := <-w.current.ResultChan():
			if !ok {
				if err := w.open(ctx); err != nil {
					return err
				}
			}
			if s, ok := e.Object.(*discoveryv1.EndpointSlice); ok && hasReadyEndpoint(s, pod) {
				return nil
			}
		case <-limit:
			return fmt.Errorf("await Pod %s: it does not turn ready in its slice", pod.Name)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func hasReadyEndpoint(s *discoveryv1.EndpointSlice, pod *corev1.Pod) bool {
	return slices.ContainsFunc(s.Endpoints, func(e discoveryv1.Endpoint) bool {
		return e.TargetRef != nil && e.TargetRef.UID == pod.UID && *e.Conditions.Ready
	})
}

// measureFlapping turns a tenth of the Pods ready and not, as fast as the clients can, and looks
// at what is left when they stop.
func (f *fleet) measureFlapping(ctx context.Context, c *scene.Controller, out io.Writer) error {
	before, err := c.Writes(ctx)
	if err != nil {
		return err
	}
	order := rand.Perm(len(f.pods))[:max(len(f.pods)/10, f.options.workers)]
	var flaps atomic.Int64
	until := time.Now().Add(f.options.flap)
	workers, flapping := errgroup.WithContext(ctx)
	for w := range f.options.workers {
		workers.Go(func() error {
			// Each has Pods of its own: of two writes the later one would be unknown.
			for n := w; time.Now().Before(until); n += f.options.workers {
				if n >= len(order) {
					n = w
				}
				if err := scene.SetReady(flapping, f.env.Client, f.pods[order[n]], rand.IntN(2) == 0); err != nil {
					return err
				}
				flaps.Add(1)
			}
			return nil
		})
	}
	if err := workers.Wait(); err != nil {
		return err
	}
	ended := time.Now()
	if err := f.awaitConsistent(ctx); err != nil {
		return err
	}
	rested := time.Since(ended)
	writes, err := c.Writes(ctx)
	if err != nil {
		return err
	}
	stale, err := c.Metric(ctx, "patchbay_service_write_conflicts_total")
	if err != nil {
		return err
	}
	now, peak, err := c.Memory()
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%d Pods flap for %s: %d changes of Pods (%.0f/s), %.0f writes of slices (%.2f for a change), %.0f more refused as stale and planned again; nothing lost or stale %.1f s after; memory %d MiB, at its peak %d MiB\n",
		len(order), f.options.flap, flaps.Load(), float64(flaps.Load())/f.options.flap.Seconds(), writes-before, (writes-before)/float64(max(flaps.Load(), 1)), stale,
		rested.Seconds(), now>>20, peak>>20)
	return err
}

// awaitConsistent waits until what is stored is what should be: nothing lost, nothing stale.
func (f *fleet) awaitConsistent(ctx context.Context) error {
	for limit := time.Now().Add(waitTimeout); ; {
		err := f.check(ctx)
		if err == nil || time.Now().After(limit) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(100 * time.Millisecond):
		}
	}
}
