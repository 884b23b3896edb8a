// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"fmt"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	crmanager "sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	danmv1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/api/operator/v1alpha1"
	"github.com/patchbay-cni/patchbay/internal/app"
	"github.com/patchbay-cni/patchbay/internal/manager"
	"github.com/patchbay-cni/patchbay/internal/securemetrics"
	"github.com/patchbay-cni/patchbay/operator/internal/controllers"
)

// leaseName is the Lease for leader election.
const leaseName = "patchbay-operator"

// newManager wires the operator. Nothing runs yet.
func newManager(ctx context.Context, cfg *rest.Config, o *options) (crmanager.Manager, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.QPS = -1 // one object after the other: the API server has priority and fairness
	kinds, err := app.NewKindChecker(cfg, v1alpha1.SchemeGroupVersion(), "deployments/operator/crds", "Installation")
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
	if err := controllers.Add(ctx, m); err != nil {
		return nil, fmt.Errorf("set up the controller of Installations: %w", err)
	}
	synced := func(ctx context.Context) error { return app.CheckSynced(ctx, m.GetCache().WaitForCacheSync) }
	health, err := app.ListenHealth(o.healthAddress, app.AllReady(kinds.CheckKnown, synced))
	if err != nil {
		return nil, err
	}
	// controller-runtime has a registry of its own.
	scrapes, err := securemetrics.Listen(o.secureMetrics, m.GetConfig(), prometheus.Gatherers{metrics.Registry}, m.GetLogger())
	if err != nil {
		return nil, err
	}
	if err := manager.AddServers(m, health, scrapes); err != nil {
		return nil, err
	}
	return m, nil
}

// managerOptions configures leader election, caches and the client.
func managerOptions(ctx context.Context, o *options) (crmanager.Options, error) {
	scheme, err := newScheme()
	if err != nil {
		return crmanager.Options{}, err
	}
	opts := manager.Options(ctx, manager.Election{Enabled: o.leaderElect, Lease: leaseName, Namespace: o.namespace})
	opts.Scheme = scheme
	opts.Cache.ByObject, err = controllers.CacheByObject()
	return opts, err
}

// newScheme returns the kinds that the operator reads or writes as typed objects.
func newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, appsv1.AddToScheme, rbacv1.AddToScheme, danmv1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("build scheme: %w", err)
		}
	}
	return scheme, nil
}
