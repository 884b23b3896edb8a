// SPDX-License-Identifier: Apache-2.0

package networkviews

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/kube"
)

// Config configures the views. All fields are optional.
type Config struct {
	// Interval is the time between two comparisons of all views; 30 s when zero.
	Interval time.Duration
	// Settle is how long a comparison waits after a namespace or a network was created, changed or
	// deleted, so that many changes at once need one comparison; 1 s when zero.
	Settle time.Duration
	// WritesPerSecond bounds the views that are written; 20 when zero.
	WritesPerSecond rate.Limit
}

func (c Config) withDefaults() Config {
	if c.Interval == 0 {
		c.Interval = 30 * time.Second
	}
	if c.Settle == 0 {
		c.Settle = time.Second
	}
	if c.WritesPerSecond == 0 {
		c.WritesPerSecond = 20
	}
	return c
}

// writer compares all views with the networks, and writes those that differ. The leader runs one.
type writer struct {
	cfg Config
	// cached reads Namespaces as metadata, and NetworkViews.
	cached client.Reader
	// direct reads networks from the API server, and writes.
	direct client.Client
	limit  *rate.Limiter
	// changed has one element when a namespace or a network changed since the last comparison.
	changed chan struct{}
}

var _ manager.Runnable = (*writer)(nil)

// Add makes a manager keep the views while it leads. The manager's client must read from the API
// server.
func Add(ctx context.Context, m manager.Manager, cfg Config) error {
	cfg = cfg.withDefaults()
	w := &writer{
		cfg: cfg, cached: m.GetCache(), direct: m.GetClient(),
		limit:   rate.NewLimiter(cfg.WritesPerSecond, 1),
		changed: make(chan struct{}, 1),
	}
	// An event of a view starts no comparison: each write would start the next one. A view that
	// another client changed is corrected at the interval.
	if _, err := m.GetCache().GetInformer(ctx, &v1.NetworkView{}); err != nil {
		return fmt.Errorf("watch NetworkViews: %w", err)
	}
	watched := []client.Object{namespaceMetadata()}
	for _, kind := range kube.NetworkKinds() {
		watched = append(watched, kube.PartialMetadata(kind))
	}
	for _, obj := range watched {
		informer, err := m.GetCache().GetInformer(ctx, obj)
		if err != nil {
			return fmt.Errorf("watch %T: %w", obj, err)
		}
		if _, err := informer.AddEventHandler(w.handler()); err != nil {
			return fmt.Errorf("watch %T: %w", obj, err)
		}
	}
	return m.Add(w)
}

// namespaceMetadata returns empty metadata of a Namespace.
func namespaceMetadata() *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}}
}

// handler starts a comparison when an object was created, deleted, or its spec changed. Address
// claims and conditions change only the status of networks.
func (w *writer) handler() toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { w.compareSoon() },
		UpdateFunc: func(before, after any) {
			old, isOld := before.(client.Object)
			now, isNow := after.(client.Object)
			if isOld && isNow && kube.SpecVersionOf(old) != kube.SpecVersionOf(now) {
				w.compareSoon()
			}
		},
		DeleteFunc: func(any) { w.compareSoon() },
	}
}

func (w *writer) compareSoon() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// Start implements manager.Runnable.
func (w *writer) Start(ctx context.Context) error {
	log := logr.FromContextOrDiscard(ctx)
	for {
		if err := w.compare(ctx); err != nil && ctx.Err() == nil {
			log.Error(err, "Failed to write NetworkViews", "retryAfter", w.cfg.Interval.String())
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(w.cfg.Interval):
		case <-w.changed:
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(w.cfg.Settle):
		}
	}
}

// compare writes the views that differ: first those whose networks differ, then those whose numbers of
// addresses do.
func (w *writer) compare(ctx context.Context) error {
	all, err := w.viewables(ctx)
	if err != nil {
		return err
	}
	existing, err := w.existing(ctx)
	if err != nil {
		return err
	}
	namespaces := &metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "NamespaceList"}}
	if err := w.cached.List(ctx, namespaces, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list cached Namespaces: %w", err)
	}
	var errs []error
	for i, c := range plan(namespaces.Items, existing, all) {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		// What is left would be written as it was before the change. The next comparison writes it.
		if i > 0 && i%minWrites == 0 && len(w.changed) > 0 {
			break
		}
		if err := w.write(ctx, c); err != nil {
			errs = append(errs, fmt.Errorf("write NetworkView of namespace %s: %w", c.want.Namespace, err))
		}
	}
	return errors.Join(errs...)
}

// minWrites is how many views one comparison writes at least, so that a network that changes every
// second does not stop the others' views.
const minWrites = 20

// existing returns the cached views by namespace. They must not be modified.
func (w *writer) existing(ctx context.Context) (map[string]*v1.NetworkView, error) {
	list := &v1.NetworkViewList{}
	if err := w.cached.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list cached NetworkViews: %w", err)
	}
	existing := make(map[string]*v1.NetworkView, len(list.Items))
	for i := range list.Items {
		if view := &list.Items[i]; view.Name == v1.NetworkViewName {
			existing[view.Namespace] = view
		}
	}
	return existing, nil
}

// viewables reads all networks from the API server's watch cache.
func (w *writer) viewables(ctx context.Context) ([]viewable, error) {
	var all []viewable
	for _, kind := range kube.NetworkKinds() {
		list, err := kube.NewNetworkList(kind)
		if err != nil {
			return nil, err
		}
		if err := w.direct.List(ctx, list, &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: "0"}}); err != nil {
			return nil, fmt.Errorf("list %ss: %w", kind, err)
		}
		err = meta.EachListItem(list, func(item runtime.Object) error {
			obj, ok := item.(client.Object)
			if !ok {
				return nil
			}
			if v, ok := newViewable(obj); ok {
				all = append(all, v)
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("read %ss: %w", kind, err)
		}
	}
	return all, nil
}

// write creates or updates the view of a namespace. A conflict means that the cache is behind: the
// next comparison tries again.
func (w *writer) write(ctx context.Context, c change) error {
	if err := w.limit.Wait(ctx); err != nil {
		return err
	}
	if c.before == nil {
		err := w.direct.Create(ctx, c.want)
		if apierrors.IsAlreadyExists(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) || apierrors.IsNotFound(err) {
			return nil // the cache is behind, or the namespace is being deleted
		}
		return err
	}
	c.want.UID, c.want.ResourceVersion = c.before.UID, c.before.ResourceVersion
	if err := w.direct.Update(ctx, c.want); err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		return err
	}
	return nil
}
