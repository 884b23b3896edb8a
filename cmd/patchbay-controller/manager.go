// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/patchbay-cni/patchbay/controller/addresses"
	"github.com/patchbay-cni/patchbay/controller/ranges"
	"github.com/patchbay-cni/patchbay/ending"
	"github.com/patchbay-cni/patchbay/objects"
	"github.com/patchbay-cni/patchbay/securemetrics"
)

// leaseName is the Lease that the replicas compete for.
const leaseName = "patchbay-controller"

// drainTimeout bounds what is under way when the controller is asked to end. The
// Pod's grace period is longer.
const drainTimeout = 15 * time.Second

// newManager wires the controller's parts; nothing runs yet.
func newManager(ctx context.Context, cfg *rest.Config, o *options) (manager.Manager, error) {
	cfg = rest.CopyConfig(cfg)
	// Requests are bounded by workers, and the API server shares itself out
	// with priority and fairness: waiting here besides would only add latency.
	cfg.QPS = -1
	opts, err := managerOptions(ctx, o)
	if err != nil {
		return nil, err
	}
	m, err := manager.New(cfg, opts)
	if err != nil {
		return nil, fmt.Errorf("make manager: %w", err)
	}
	registry := prometheus.NewRegistry()
	if err := addresses.Add(ctx, m, addresses.Config{Grace: o.nodeGrace, Registry: registry, Namespace: o.namespace}); err != nil {
		return nil, fmt.Errorf("set up the controller of addresses: %w", err)
	}
	used := ranges.New(m.GetConfig(), o.clusterRanges, m.GetLogger().WithName("ranges"))
	if err := errors.Join(m.Add(used), addServices(ctx, m, registry, used), addReadiness(ctx, m, registry)); err != nil {
		return nil, err
	}
	ready, err := addAdmission(ctx, m, o, used)
	if err != nil {
		return nil, err
	}
	s, err := newServer(o.http, m.GetCache().WaitForCacheSync, ready)
	if err != nil {
		return nil, err
	}
	// controller-runtime's metrics are in a registry of its own.
	scrapes, err := securemetrics.Listen(o.scrapes, m.GetConfig(), prometheus.Gatherers{registry, metrics.Registry}, m.GetLogger())
	if err != nil {
		return nil, err
	}
	if err := errors.Join(m.Add(s), m.Add(scrapes), m.Add(release{synced: m.GetCache().WaitForCacheSync, free: debug.FreeOSMemory})); err != nil {
		return nil, fmt.Errorf("add health checks and metrics: %w", err)
	}
	return m, nil
}

// managerOptions says how the manager elects, caches and reads.
func managerOptions(ctx context.Context, o *options) (manager.Options, error) {
	scheme, err := objects.NewScheme()
	if err != nil {
		return manager.Options{}, err
	}
	drain, skip := drainTimeout, true
	return manager.Options{
		Scheme: scheme,
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) {
			return objects.NewMapper(), nil
		},
		Logger:      logr.FromContextOrDiscard(ctx),
		BaseContext: func() context.Context { return ctx },
		NewCache:    ending.NewCache(ctx),
		// A read that asks for a cache by accident fails, instead of streaming
		// the status of all networks into this process.
		Cache: cache.Options{ReaderFailOnMissingInformer: true, DefaultTransform: objects.Slim, ByObject: cached(), NewInformer: newInformer},
		// Reads are answered by the API server unless the cache is asked by name.
		NewClient: func(cfg *rest.Config, opts client.Options) (client.Client, error) {
			opts.Cache = nil
			return client.New(cfg, opts)
		},
		Metrics:                       metricsserver.Options{BindAddress: "0"}, // securemetrics serves them
		LeaderElection:                o.elect,
		LeaderElectionID:              leaseName,
		LeaderElectionNamespace:       o.namespace,
		LeaderElectionReleaseOnCancel: true, // main ends when the manager has
		GracefulShutdownTimeout:       &drain,
		// Tests run several of these in one process.
		Controller: config.Controller{SkipNameValidation: &skip},
	}, nil
}
