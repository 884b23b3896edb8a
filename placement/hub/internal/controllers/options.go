// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/internal/app"
)

// reconcileTimeout bounds each reconciliation: while the API server does not answer for one object,
// the worker must get on to the others.
const reconcileTimeout = 2 * time.Minute

// NewScheme returns a scheme with the kinds that the hub reads and writes by type.
func NewScheme() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		v1alpha1.AddToScheme, corev1.AddToScheme, rbacv1.AddToScheme, coordinationv1.AddToScheme,
		certificatesv1.AddToScheme, appsv1.AddToScheme, metav1.AddMetaToScheme,
	} {
		if err := add(s); err != nil {
			return nil, fmt.Errorf("build scheme: %w", err)
		}
	}
	return s, nil
}

// Options returns the options of a manager for Add that runs until ctx ends. Its client reads from
// the API server, and its cache drops what no decision depends on.
func Options(ctx context.Context) (manager.Options, error) {
	scheme, err := NewScheme()
	if err != nil {
		return manager.Options{}, err
	}
	skip := true
	managed := cache.ByObject{Label: labels.SelectorFromSet(labels.Set{v1alpha1.ManagedLabel: "true"})}
	return manager.Options{
		Scheme: scheme,
		Cache: cache.Options{
			DefaultTransform: dropUnused,
			ByObject: map[client.Object]cache.ByObject{
				&coordinationv1.Lease{}:      {Field: fields.OneTermEqualSelector("metadata.name", v1alpha1.HeartbeatLease)},
				&rbacv1.Role{}:               managed, // agents' rights
				&rbacv1.RoleBinding{}:        managed,
				&rbacv1.ClusterRole{}:        managed,
				&rbacv1.ClusterRoleBinding{}: managed,
			},
		},
		NewClient: func(cfg *rest.Config, opts client.Options) (client.Client, error) {
			opts.Cache = nil
			return client.New(cfg, opts)
		},
		NewCache:    app.NewCache(ctx),
		BaseContext: func() context.Context { return ctx },
		Metrics:     metricsserver.Options{BindAddress: "0"},
		Controller:  config.Controller{SkipNameValidation: &skip, ReconciliationTimeout: reconcileTimeout},
	}, nil
}

// dropUnused drops what no decision depends on from an object, before it is cached.
func dropUnused(o any) (any, error) {
	object, ok := o.(metav1.Object)
	if !ok {
		return o, nil
	}
	object.SetManagedFields(nil)
	if a := object.GetAnnotations(); a[corev1.LastAppliedConfigAnnotation] != "" {
		delete(a, corev1.LastAppliedConfigAnnotation)
		object.SetAnnotations(a)
	}
	return o, nil
}
