// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/test/bench/measure"
)

// sample is one run of a load.
type sample struct {
	// created are the creations, as their client sees them; probed are the calls of the prober.
	created, probed measure.Result
	// server is the API server's histogram of its calls of the webhook, handler that of the controller,
	// without TLS and the time in queues.
	server, handler histogram
	// missed is the number of Pods that the API server admitted without an answer. Failed is the number
	// of creations without a Pod, which happens when the machine is too busy for the rate.
	missed, failed float64
	// used are the processor times by program during the run, and load is the load average before it.
	used map[string]time.Duration
	load string
}

// String implements fmt.Stringer.
func (s sample) String() string {
	created := "no creations"
	if len(s.created.Took) > 0 {
		created = fmt.Sprintf("p99 %.1f ms, p50 %.1f ms, %.0f creations/s, %.0f failed, %.0f calls, %.0f missed",
			createdMillis(0.99)(s), createdMillis(0.5)(s), s.created.Reached(), s.failed, s.server.count, s.missed)
	}
	return fmt.Sprintf("%s; p99 of a call %.1f ms; load average before %s", created, measure.Millis(measure.Quantile(s.probed.Took, 0.99)), s.load)
}

// measureAll runs all loads in turns, each run in another order, so that a slow minute of the machine
// and the growth of etcd affect all of them. Samples has the runs of each load.
func (c *cluster) measureAll(ctx context.Context, out io.Writer) (samples [][]sample, err error) {
	all := loads()
	samples = make([][]sample, len(all))
	if err := c.warmUp(ctx); err != nil {
		return nil, err
	}
	for run := range c.runs {
		for turn := range all {
			i := (run + turn) % len(all)
			s, err := c.measure(ctx, all[i], run)
			if err != nil {
				return nil, fmt.Errorf("run %d, %s: %w", run+1, all[i].name, err)
			}
			if _, err := fmt.Fprintf(out, "run %d, %s: %s\n", run+1, all[i].name, s); err != nil {
				return nil, err
			}
			samples[i] = append(samples[i], s)
		}
	}
	return samples, nil
}

// warmUp creates Pods that are not measured.
func (c *cluster) warmUp(ctx context.Context) error {
	if err := c.configure(ctx, true); err != nil {
		return err
	}
	l := measure.OpenLoop{Rate: c.rate, Requests: c.rate * 2}
	_, err := l.Run(ctx, func(ctx context.Context, i int) error {
		if err := c.create(ctx, "warm", i, true); !overloaded(err) {
			return err
		}
		return nil
	})
	return errors.Join(err, c.removePods(ctx))
}

// create creates a Pod.
func (c *cluster) create(ctx context.Context, prefix string, i int, annotated bool) error {
	if err := c.clients[i%len(c.clients)].Create(ctx, c.pod(prefix, i, annotated)); err != nil {
		return fmt.Errorf("create Pod: %w", err)
	}
	return nil
}

// measure runs a load, and removes its Pods.
func (c *cluster) measure(ctx context.Context, l load, run int) (s sample, err error) {
	if err := c.configure(ctx, l.configured); err != nil {
		return s, err
	}
	s.load = loadAverage()
	before, err := c.read(ctx)
	if err != nil {
		return s, err
	}
	if err := c.apply(ctx, l, run, &s); err != nil {
		return s, err
	}
	after, err := c.read(ctx)
	if err != nil {
		return s, err
	}
	s.server, s.handler = after.server.minus(before.server), after.handler.minus(before.handler)
	s.missed = after.missed - before.missed
	if expected := l.annotated && l.configured; !expected && s.server.count > 0 {
		return s, fmt.Errorf("the API server called the webhook %.0f times, which it must not", s.server.count)
	}
	return s, c.removePods(ctx)
}

// apply creates the Pods of a load and calls the webhook at the same time.
func (c *cluster) apply(ctx context.Context, l load, run int, s *sample) error {
	seconds := int(c.duration / time.Second)
	pods, probes := measure.OpenLoop{Rate: c.rate, Requests: c.rate * seconds}, measure.OpenLoop{Rate: c.probes, Requests: c.probes * seconds}
	if l.callsOnly {
		pods, probes = measure.OpenLoop{}, pods
	}
	prefix := fmt.Sprintf("run%d", run)
	before := measure.ProcessorTimes()
	var failed atomic.Int64
	both, ctx := errgroup.WithContext(ctx)
	both.Go(func() (err error) {
		s.created, err = pods.Run(ctx, func(ctx context.Context, i int) error {
			err := c.create(ctx, prefix, i, l.annotated)
			if overloaded(err) {
				failed.Add(1)
				return nil
			}
			return err
		})
		return err
	})
	both.Go(func() (err error) {
		s.probed, err = probes.Run(ctx, func(ctx context.Context, i int) error { return c.prober.call(ctx, c.pod("probe", i, true)) })
		return err
	})
	if c.profiler != nil && run == 0 && l.annotated && l.configured {
		both.Go(func() error { return c.profiler.write(ctx, seconds, c.profile) })
	}
	err := both.Wait()
	s.used, s.failed = measure.ProcessorTimes(), float64(failed.Load())
	for name := range s.used {
		s.used[name] -= before[name]
	}
	return err
}

// overloaded reports whether the API server had no time for a request. A Pod that it rejects for
// another reason is a fault of the benchmark.
func overloaded(err error) bool {
	return apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) || apierrors.IsTooManyRequests(err) || utilnet.IsConnectionReset(err) || utilnet.IsProbableEOF(err) || errors.Is(err, io.ErrUnexpectedEOF)
}

// removePods deletes all Pods. None is on a node, so each is gone at once.
func (c *cluster) removePods(ctx context.Context) error {
	all, ctx := errgroup.WithContext(ctx)
	for i := range c.namespaces {
		all.Go(func() error {
			err := c.env.Client.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(namespace(i)), client.GracePeriodSeconds(0))
			if err != nil {
				return fmt.Errorf("delete Pods: %w", err)
			}
			return nil
		})
	}
	return all.Wait()
}

// loadAverage returns the machine's load of the last minute, which other programs cause too.
func loadAverage() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	first, _, _ := strings.Cut(string(text), " ")
	return first
}

// counters are what API server and controller count.
type counters struct {
	server, handler histogram
	missed          float64
}

// read reads the counters.
func (c *cluster) read(ctx context.Context) (r counters, err error) {
	clients, err := kubernetes.NewForConfig(c.env.Config)
	if err != nil {
		return r, fmt.Errorf("make client: %w", err)
	}
	text, err := clients.CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return r, fmt.Errorf("read the API server's metrics: %w", err)
	}
	named := fmt.Sprintf("name=%q", podWebhook)
	r.server = parseHistogram(string(text), "apiserver_admission_webhook_admission_duration_seconds", named)
	r.missed = parseSum(string(text), "apiserver_admission_webhook_fail_open_count", named)
	own, err := c.controller.Metrics(ctx)
	if err != nil {
		return r, fmt.Errorf("read the controller's metrics: %w\n%s", err, c.controller.Log())
	}
	r.handler = parseHistogram(own, "controller_runtime_webhook_latency_seconds", fmt.Sprintf("webhook=%q", "/"+podWebhook+"/"))
	return r, nil
}
