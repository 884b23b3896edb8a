// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// component is the source of the hub's Events.
const component = "patchbay-hub"

func namespaceKind() schema.GroupVersionKind { return corev1.SchemeGroupVersion.WithKind("Namespace") }

// Add makes a manager run the hub's controllers while it leads. The manager must be
// made with Options.
func Add(ctx context.Context, m manager.Manager, cfg Config) error {
	cfg = cfg.withDefaults()
	h := &hub{
		cached: m.GetCache(), direct: m.GetClient(), now: cfg.Now,
		access: &access{cached: m.GetCache(), direct: m.GetClient()},
		kinds:  &kinds{}, ledger: newLedger(), drains: newDrains(),
		probed: make(chan struct{}), probeLife: cfg.probeLife, freshWait: cfg.freshWait,
	}
	var err error
	if h.events, err = newRecorder(ctx, m); err != nil {
		return err
	}
	if err := h.index(ctx); err != nil {
		return err
	}
	ctl, err := controller.NewTyped("placement", m, controller.TypedOptions[Key]{
		Reconciler: h, MaxConcurrentReconciles: cfg.Workers, RateLimiter: retries[Key](),
	})
	if err != nil {
		return fmt.Errorf("make the controller of objects: %w", err)
	}
	if err := h.watch(ctl); err != nil {
		return err
	}
	d, err := discovery.NewDiscoveryClientForConfigAndClient(m.GetConfig(), m.GetHTTPClient())
	if err != nil {
		return fmt.Errorf("make discovery client: %w", err)
	}
	for name, add := range map[string]func(manager.Manager) error{
		"refusal":      h.addRefusal,
		"kinds":        func(m manager.Manager) error { return m.Add(newWatcher(h, ctl, d)) },
		"clusters":     h.addClusters,
		"certificates": h.addCertificates,
		"policies":     h.addPolicies,
	} {
		if err := add(m); err != nil {
			return fmt.Errorf("add the controller of %s: %w", name, err)
		}
	}
	return nil
}

// index makes the caches' indexes.
func (h *hub) index(ctx context.Context) error {
	if err := h.cached.IndexField(ctx, &v1alpha1.Assignment{}, byFollowed, followKeys); err != nil {
		return fmt.Errorf("index Assignments: %w", err)
	}
	if err := h.cached.IndexField(ctx, &v1alpha1.Work{}, byName, func(o client.Object) []string {
		return []string{o.GetName()}
	}); err != nil {
		return fmt.Errorf("index Works: %w", err)
	}
	return nil
}

// newRecorder starts a recorder that stops when ctx ends.
func newRecorder(ctx context.Context, m manager.Manager) (record.EventRecorder, error) {
	c, err := typedcorev1.NewForConfigAndClient(m.GetConfig(), m.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("make client for Events: %w", err)
	}
	b := record.NewBroadcaster(record.WithContext(ctx))
	b.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: c.Events("")})
	context.AfterFunc(ctx, b.Shutdown)
	return b.NewRecorder(m.GetScheme(), corev1.EventSource{Component: component}).
		WithLogger(logr.FromContextOrDiscard(ctx)), nil
}

// empty is an object of a kind, for the cache of whole objects.
func empty(gvk schema.GroupVersionKind) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(gvk)
	return o
}
