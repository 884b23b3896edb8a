// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// endingCache is a cache for which nobody waits once the program is asked to end. The
// manager would wait until it is filled, whoever asks for what: with an API server that
// is away, forever.
type endingCache struct {
	cache.Cache

	ended func() bool
}

// newCache makes caches whose wait ends with ctx.
func newCache(ctx context.Context) cache.NewCacheFunc {
	return func(cfg *rest.Config, opts cache.Options) (cache.Cache, error) {
		c, err := cache.New(cfg, opts)
		if err != nil {
			return nil, fmt.Errorf("make cache: %w", err)
		}
		return &endingCache{Cache: c, ended: func() bool { return ctx.Err() != nil }}, nil
	}
}

// WaitForCacheSync is true at the end, too: the manager goes on, and sees that it is over.
func (c *endingCache) WaitForCacheSync(ctx context.Context) bool {
	return c.Cache.WaitForCacheSync(ctx) || c.ended()
}

// serve runs the manager until ctx ends. What a part says that was still starting then is
// no failure; that one did not end in time is.
func serve(ctx context.Context, m manager.Manager) error {
	err := m.Start(ctx)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil && !errors.Is(err, context.DeadlineExceeded):
		logr.FromContextOrDiscard(ctx).Info("Ended while parts were starting", "said", err.Error())
		return nil
	}
	return fmt.Errorf("run: %w", err)
}
