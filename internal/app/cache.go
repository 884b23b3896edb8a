// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
)

// NewCache returns a cache constructor for a manager. Unlike the default, the manager does not wait
// for these caches after ctx has ended: with an unreachable API server it would wait forever.
func NewCache(ctx context.Context) cache.NewCacheFunc {
	return func(cfg *rest.Config, opts cache.Options) (cache.Cache, error) {
		c, err := cache.New(cfg, opts)
		if err != nil {
			return nil, fmt.Errorf("make cache: %w", err)
		}
		return &stoppableCache{Cache: c, stopped: ctx.Err}, nil
	}
}

// stoppableCache is a cache whose WaitForCacheSync ends with ctx.
type stoppableCache struct {
	cache.Cache

	stopped func() error
}

// WaitForCacheSync also returns true when ctx has ended, so that the manager continues and stops.
func (c *stoppableCache) WaitForCacheSync(ctx context.Context) bool {
	return c.Cache.WaitForCacheSync(ctx) || c.stopped() != nil
}
