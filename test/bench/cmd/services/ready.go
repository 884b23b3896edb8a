// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/test/bench/measure"
	"github.com/patchbay-cni/patchbay/test/services/scene"
)

// turnReady makes Pods ready one at a time and watches for them in the slices, as
// kube-proxies and DNS servers do.
func (f *fleet) turnReady(ctx context.Context, c *scene.Controller, out io.Writer) error {
	chosen := rand.Perm(len(f.pods))[:min(f.o.samples, len(f.pods))]
	for _, i := range chosen {
		if err := scene.SetReady(ctx, f.env.Client, f.pods[i], false); err != nil {
			return err
		}
	}
	if err := f.rest(ctx); err != nil {
		return err
	}
	w := &watcher{fleet: f}
	if err := w.open(ctx); err != nil {
		return err
	}
	defer func() { w.now.Stop() }()
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
	if err := f.rest(ctx); err != nil {
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

// watcher watches the slices, and again when the API server ends that: what is there
// by then comes first.
type watcher struct {
	*fleet

	now watch.Interface
}

func (w *watcher) open(ctx context.Context) (err error) {
	if w.now, err = w.env.Client.Watch(ctx, &discoveryv1.EndpointSliceList{}, client.InNamespace(w.ns)); err != nil {
		return fmt.Errorf("watch slices: %w", err)
	}
	return nil
}

// await waits until the watch shows a Pod ready.
func (w *watcher) await(ctx context.Context, pod *corev1.Pod) error {
	for limit := time.After(patience); ; {
		select {
		case e, ok := <-w.now.ResultChan():
			if !ok {
				if err := w.open(ctx); err != nil {
					return err
				}
			}
			if s, ok := e.Object.(*discoveryv1.EndpointSlice); ok && shows(s, pod) {
				return nil
			}
		case <-limit:
			return fmt.Errorf("await Pod %s: it does not turn ready in its slice", pod.Name)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func shows(s *discoveryv1.EndpointSlice, pod *corev1.Pod) bool {
	return slices.ContainsFunc(s.Endpoints, func(e discoveryv1.Endpoint) bool {
		return e.TargetRef != nil && e.TargetRef.UID == pod.UID && *e.Conditions.Ready
	})
}
