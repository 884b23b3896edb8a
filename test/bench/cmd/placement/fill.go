// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// fill makes that many objects, each in one of the clusters, waits until all have
// arrived, and prints how long that took.
func (l *lab) fill(ctx context.Context, prefix string, n int, clusters []string) error {
	const parallel = 8
	begun := time.Now()
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	for i := range n {
		g.Go(func() error {
			at := i % len(clusters)
			return l.bed.Hub.Client.Create(gctx, configMap(fmt.Sprintf("%s-%d", prefix, i), strconv.Itoa(i), clusters[at:at+1]))
		})
	}
	if err := g.Wait(); err != nil {
		return fmt.Errorf("create objects: %w", err)
	}
	created := time.Since(begun)
	if err := l.arrive(ctx, prefix, n); err != nil {
		return err
	}
	took := time.Since(begun)
	_, err := fmt.Fprintf(l.out, "%d objects made within %.0f s, in clusters and reported after %.0f s (%.0f a second)\n",
		n, created.Seconds(), took.Seconds(), float64(n)/took.Seconds())
	return err
}

// arrive waits until all objects are reported to be in their clusters.
func (l *lab) arrive(ctx context.Context, prefix string, n int) error {
	for {
		var list v1alpha1.WorkList
		if err := l.list(ctx, &list); err != nil {
			return err
		}
		done := 0
		for i := range list.Items {
			w := &list.Items[i]
			if w.Status.Revision == w.Spec.Revision && strings.HasPrefix(w.Spec.Source.Name, prefix+"-") {
				done++
			}
		}
		if done == n {
			return nil
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return fmt.Errorf("await %d objects, %d are there: %w", n, done, ctx.Err())
		}
	}
}
