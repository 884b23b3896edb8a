// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
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

	"github.com/patchbay-cni/patchbay/controller/internal/addresses"
	"github.com/patchbay-cni/patchbay/controller/internal/clusterranges"
	"github.com/patchbay-cni/patchbay/controller/internal/networks"
	services "github.com/patchbay-cni/patchbay/controller/internal/services"
	"github.com/patchbay-cni/patchbay/controller/internal/webhook"
	"github.com/patchbay-cni/patchbay/internal/app"
	"github.com/patchbay-cni/patchbay/internal/kube"
	"github.com/patchbay-cni/patchbay/internal/securemetrics"
)

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
	if err := addresses.Add(ctx, m, addresses.Config{NodeGracePeriod: o.nodeGrace, Registry: registry, Namespace: o.namespace}); err != nil {
		return nil, fmt.Errorf("set up the controller of addresses: %w", err)
	}
	used := clusterranges.New(m.GetConfig(), o.clusterRanges, m.GetLogger().WithName("ranges"))
	if err := errors.Join(m.Add(used), addServiceController(ctx, m, registry, used), addNetworkController(ctx, m, registry)); err != nil {
		return nil, err
	}
	ready, err := addAdmission(ctx, m, o, used)
	if err != nil {
		return nil, err
	}
	s, err := newHealthServer(o.healthAddress, m.GetCache().WaitForCacheSync, ready)
	if err != nil {
		return nil, err
	}
	// controller-runtime's metrics are in a registry of its own.
	scrapes, err := securemetrics.Listen(o.secureMetrics, m.GetConfig(), prometheus.Gatherers{registry, metrics.Registry}, m.GetLogger())
	if err != nil {
		return nil, err
	}
	if err := errors.Join(m.Add(s), m.Add(scrapes), m.Add(memoryReleaser{synced: m.GetCache().WaitForCacheSync, free: debug.FreeOSMemory})); err != nil {
		return nil, fmt.Errorf("add health checks and metrics: %w", err)
	}
	return m, nil
}

// managerOptions says how the manager elects, caches and reads.
func managerOptions(ctx context.Context, o *options) (manager.Options, error) {
	scheme, err := kube.NewScheme()
	if err != nil {
		return manager.Options{}, err
	}
	drain, skip := gracefulShutdownTimeout, true
	return manager.Options{
		Scheme: scheme,
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) {
			return kube.NewMapper(), nil
		},
		Logger:      logr.FromContextOrDiscard(ctx),
		BaseContext: func() context.Context { return ctx },
		NewCache:    app.NewCache(ctx),
		// A read that asks for a cache by accident fails, instead of streaming
		// the status of all networks into this process.
		Cache: cache.Options{ReaderFailOnMissingInformer: true, DefaultTransform: kube.StripUnusedFields, ByObject: cacheByObject(), NewInformer: newPagedInformer},
		// Reads are answered by the API server unless the cache is asked by name.
		NewClient: func(cfg *rest.Config, opts client.Options) (client.Client, error) {
			opts.Cache = nil
			return client.New(cfg, opts)
		},
		Metrics:                       metricsserver.Options{BindAddress: "0"}, // securemetrics serves them
		LeaderElection:                o.leaderElect,
		LeaderElectionID:              leaseName,
		LeaderElectionNamespace:       o.namespace,
		LeaderElectionReleaseOnCancel: true, // main ends when the manager has
		GracefulShutdownTimeout:       &drain,
		// Tests run several of these in one process.
		Controller: config.Controller{SkipNameValidation: &skip},
	}, nil
}

// leaseName is the Lease that the replicas compete for.
const leaseName = "patchbay-controller"

// gracefulShutdownTimeout bounds what is under way when the controller is asked to end. The
// Pod's grace period is longer.
const gracefulShutdownTimeout = 15 * time.Second

// cacheByObject is what the parts of the controller keep of the objects that they cache.
func cacheByObject() map[client.Object]cache.ByObject {
	all := addresses.CacheByObject()
	maps.Copy(all, services.Cached())
	return networks.CacheByObject(all)
}

// addServiceController makes the leader keep the EndpointSlices of Services on networks.
func addServiceController(ctx context.Context, m manager.Manager, registry prometheus.Registerer, used *clusterranges.Watcher) error {
	events, err := addresses.NewEventRecorder(ctx, m.GetConfig(), m.GetScheme())
	if err != nil {
		return err
	}
	if err := services.Add(ctx, m, services.Config{Registry: registry, Events: events, Ranges: used}); err != nil {
		return fmt.Errorf("set up Services: %w", err)
	}
	return nil
}

// addNetworkController has the leader say on networks where their links are up.
func addNetworkController(ctx context.Context, m manager.Manager, registry *prometheus.Registry) error {
	events, err := addresses.NewEventRecorder(ctx, m.GetConfig(), m.GetScheme())
	if err != nil {
		return err
	}
	if err := networks.Add(m, networks.Config{Registry: registry, Events: events}); err != nil {
		return fmt.Errorf("set up the controller of networks' readiness: %w", err)
	}
	return nil
}

// addAdmission has every replica answer the API server, whoever leads, unless the flag
// is empty. What it returns says why this replica does not answer yet.
func addAdmission(ctx context.Context, m manager.Manager, o *options, used *clusterranges.Watcher) (ready func() error, err error) {
	if o.webhookAddress == "" {
		return func() error { return nil }, nil
	}
	host, port, err := parseWebhookAddress(o.webhookAddress)
	if err != nil {
		return nil, err
	}
	ready, err = webhook.Register(ctx, m, webhook.Options{
		Namespace: o.namespace, Host: host, Port: port, NamingScheme: o.namingScheme, Ranges: used,
	})
	if err != nil {
		return nil, fmt.Errorf("set up admission: %w", err)
	}
	return ready, nil
}
