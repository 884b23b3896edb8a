// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metainternal "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/pager"
)

// newPagedInformer is cache.NewSharedIndexInformer for API servers that do not stream lists. All
// Pods of a cluster at once, before stripping, would need several times the memory of what is kept.
func newPagedInformer(lw cache.ListerWatcher, obj runtime.Object, resync time.Duration, by cache.Indexers) cache.SharedIndexInformer {
	paged, lister := newPagedListerWatcher(lw)
	return &pagedInformer{SharedIndexInformer: cache.NewSharedIndexInformer(paged, obj, resync, by), lister: lister}
}

// newPagedListerWatcher makes lists come in pages. It does not change watches, and whether they
// stream lists.
func newPagedListerWatcher(lw cache.ListerWatcher) (cache.ListerWatcher, *pagedLister) {
	l := &pagedLister{ListerWatcherWithContext: cache.ToListerWatcherWithContext(lw)}
	paged := &cache.ListWatch{ListWithContextFunc: l.list, WatchFuncWithContext: l.WatchWithContext}
	return cache.ToListWatcherWithWatchListSemantics(paged, lw), l
}

// pagedInformer passes the transform function on to its lister.
type pagedInformer struct {
	cache.SharedIndexInformer

	lister *pagedLister
}

// SetTransform is called before the informer runs.
func (i *pagedInformer) SetTransform(transform cache.TransformFunc) error {
	i.lister.transform = transform
	return i.SharedIndexInformer.SetTransform(transform)
}

// pagedLister strips each page before it requests the next one. The informer strips the objects
// again, which changes nothing.
type pagedLister struct {
	cache.ListerWatcherWithContext

	transform cache.TransformFunc // or nil
}

// list ignores the requested resourceVersion, because only a list from etcd comes in pages.
func (l *pagedLister) list(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	opts.ResourceVersion, opts.ResourceVersionMatch, opts.Limit = "", "", 0
	all, _, err := pager.New(l.listPage).List(ctx, opts)
	return all, err
}

// listPage lists and strips one page.
func (l *pagedLister) listPage(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	full, err := l.ListWithContext(ctx, opts)
	if err != nil || l.transform == nil {
		return full, err
	}
	about, err := meta.ListAccessor(full)
	if err != nil {
		return nil, fmt.Errorf("read list: %w", err)
	}
	slim := &metainternal.List{ListMeta: metav1.ListMeta{ResourceVersion: about.GetResourceVersion(), Continue: about.GetContinue()}}
	return slim, meta.EachListItemWithAlloc(full, func(obj runtime.Object) error {
		item, err := l.transform(obj)
		if o, ok := item.(runtime.Object); ok {
			slim.Items = append(slim.Items, o)
		}
		return err
	})
}
