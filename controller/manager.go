// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"runtime/debug"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	crmanager "sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/controller/internal/addresses"
	"github.com/patchbay-cni/patchbay/controller/internal/clusterranges"
	"github.com/patchbay-cni/patchbay/controller/internal/networks"
	"github.com/patchbay-cni/patchbay/controller/internal/networkviews"
	"github.com/patchbay-cni/patchbay/controller/internal/nodelabels"
	"github.com/patchbay-cni/patchbay/controller/internal/services"
	"github.com/patchbay-cni/patchbay/controller/internal/webhook"
	"github.com/patchbay-cni/patchbay/internal/app"
	"github.com/patchbay-cni/patchbay/internal/kube"
	"github.com/patchbay-cni/patchbay/internal/manager"
	"github.com/patchbay-cni/patchbay/internal/securemetrics"
)

// newManager wires the parts of the controller. Nothing runs yet.
func newManager(ctx context.Context, cfg *rest.Config, o *options) (crmanager.Manager, error) {
	cfg = rest.CopyConfig(cfg)
	// The number of workers bounds requests, and the API server has priority and fairness: a limit
	// here would only add latency.
	cfg.QPS = -1
	kinds, err := app.NewKindChecker(cfg, v1.SchemeGroupVersion(), "deployments/crds",
		"ClusterNetwork", "DanmEp", "DanmNet", "NetworkView", "NodeNetwork", "TenantConfig", "TenantNetwork")
	if err != nil {
		return nil, err
	}
	kinds.Log = logr.FromContextOrDiscard(ctx)
	opts, err := managerOptions(ctx, o)
	if err != nil {
		return nil, err
	}
	opts.Cache.DefaultWatchErrorHandler = kinds.HandleWatchError
	m, err := crmanager.New(cfg, opts)
	if err != nil {
		return nil, fmt.Errorf("make manager: %w", err)
	}
	registry := prometheus.NewRegistry()
	own := newProgramMetrics(registry)
	if err := addresses.Add(ctx, m, addresses.Config{NodeGracePeriod: o.nodeGrace, Metrics: own.addresses, Namespace: o.namespace}); err != nil {
		return nil, fmt.Errorf("set up the controller of addresses: %w", err)
	}
	ranges := clusterranges.New(m.GetConfig(), o.clusterRanges, m.GetLogger().WithName("ranges"))
	if err := errors.Join(m.Add(ranges), addServiceController(ctx, m, own.services, ranges), addNetworkController(ctx, m, own.networks)); err != nil {
		return nil, err
	}
	if err := networkviews.Add(ctx, m, networkviews.Config{}); err != nil {
		return nil, fmt.Errorf("set up NetworkViews: %w", err)
	}
	if err := nodelabels.Add(ctx, m, nodelabels.Config{}); err != nil {
		return nil, fmt.Errorf("set up the labels of Nodes: %w", err)
	}
	ready, err := addAdmission(ctx, m, o, own.webhook, ranges)
	if err != nil {
		return nil, err
	}
	health, err := app.ListenHealth(o.healthAddress, app.AllReady(kinds.CheckKnown, readyCheck(m.GetCache().WaitForCacheSync, ready)))
	if err != nil {
		return nil, err
	}
	// controller-runtime has a registry of its own.
	scrapes, err := securemetrics.Listen(o.secureMetrics, m.GetConfig(), prometheus.Gatherers{registry, metrics.Registry}, m.GetLogger())
	if err != nil {
		return nil, err
	}
	if err := manager.AddServers(m, health, scrapes, memoryReleaser{synced: m.GetCache().WaitForCacheSync, free: debug.FreeOSMemory}); err != nil {
		return nil, err
	}
	return m, nil
}

// RegisterMetrics registers the metrics that a controller serves beside those of controller-runtime.
// The page docs/reference/metrics.md is made from them.
func RegisterMetrics(r prometheus.Registerer) { newProgramMetrics(r) }

// programMetrics are the metrics of all parts.
type programMetrics struct {
	addresses *addresses.Metrics
	networks  *networks.Metrics
	services  *services.Metrics
	webhook   *webhook.Metrics
}

// newProgramMetrics registers the metrics of all parts.
func newProgramMetrics(r prometheus.Registerer) programMetrics {
	return programMetrics{
		addresses: addresses.RegisterMetrics(r), networks: networks.RegisterMetrics(r),
		services: services.RegisterMetrics(r), webhook: webhook.RegisterMetrics(r),
	}
}

// readyCheck is the check behind /readyz: the replica could lead at once, as its caches are
// filled, and its admission webhooks answer the API server.
func readyCheck(synced func(context.Context) bool, admission func() error) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := app.CheckSynced(ctx, synced); err != nil {
			return err
		}
		if err := admission(); err != nil {
			return fmt.Errorf("the admission webhooks do not answer yet: %w", err)
		}
		return nil
	}
}

// managerOptions configures leader election, caches and the client.
func managerOptions(ctx context.Context, o *options) (crmanager.Options, error) {
	scheme, err := kube.NewScheme()
	if err != nil {
		return crmanager.Options{}, err
	}
	opts := manager.Options(ctx, manager.Election{Enabled: o.leaderElect, Lease: leaseName, Namespace: o.namespace})
	opts.Scheme = scheme
	opts.MapperProvider = func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return kube.NewMapper(), nil }
	opts.Cache.DefaultTransform, opts.Cache.ByObject, opts.Cache.NewInformer = kube.StripUnusedFields, cacheByObject(), newPagedInformer
	return opts, nil
}

// leaseName is the Lease for leader election.
const leaseName = "patchbay-controller"

// cacheByObject returns how the parts of the controller strip the objects that they cache.
func cacheByObject() map[client.Object]cache.ByObject {
	all := addresses.CacheByObject()
	maps.Copy(all, services.CacheByObject())
	return networks.CacheByObject(all)
}

// addServiceController adds the controller of Services on networks.
func addServiceController(ctx context.Context, m crmanager.Manager, own *services.Metrics, ranges *clusterranges.Watcher) error {
	events, err := addresses.NewEventRecorder(ctx, m.GetConfig(), m.GetScheme())
	if err != nil {
		return err
	}
	if err := services.Add(ctx, m, services.Config{Metrics: own, Events: events, Ranges: ranges}); err != nil {
		return fmt.Errorf("set up Services: %w", err)
	}
	return nil
}

// addNetworkController adds the controller of the networks' condition Ready.
func addNetworkController(ctx context.Context, m crmanager.Manager, own *networks.Metrics) error {
	events, err := addresses.NewEventRecorder(ctx, m.GetConfig(), m.GetScheme())
	if err != nil {
		return err
	}
	if err := networks.Add(m, networks.Config{Metrics: own, Events: events}); err != nil {
		return fmt.Errorf("set up the controller of the networks' condition Ready: %w", err)
	}
	return nil
}

// addAdmission adds the admission webhooks, which every replica serves, unless the flag is empty.
// Ready returns why this replica does not answer yet.
func addAdmission(ctx context.Context, m crmanager.Manager, o *options, own *webhook.Metrics, ranges *clusterranges.Watcher) (ready func() error, err error) {
	if o.webhookAddress == "" {
		return func() error { return nil }, nil
	}
	host, port, err := parseWebhookAddress(o.webhookAddress)
	if err != nil {
		return nil, err
	}
	events, err := addresses.NewEventRecorder(ctx, m.GetConfig(), m.GetScheme())
	if err != nil {
		return nil, err
	}
	ready, err = webhook.Register(ctx, m, webhook.Options{
		Namespace: o.namespace, Host: host, Port: port, NamingScheme: o.namingScheme, Ranges: ranges, Metrics: own, Events: events,
	})
	if err != nil {
		return nil, fmt.Errorf("set up admission: %w", err)
	}
	return ready, nil
}
