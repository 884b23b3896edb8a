// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
)

// NewCache makes caches for which nobody waits once ctx has ended. A manager would wait
// until they are filled, whoever asks for what: with an API server that is away, forever.
func NewCache(ctx context.Context) cache.NewCacheFunc {
	return func(cfg *rest.Config, opts cache.Options) (cache.Cache, error) {
		c, err := cache.New(cfg, opts)
		if err != nil {
			return nil, fmt.Errorf("make cache: %w", err)
		}
		return &stoppableCache{Cache: c, stopped: ctx.Err}, nil
	}
}

// stoppableCache is a cache whose wait ends.
type stoppableCache struct {
	cache.Cache

	stopped func() error
}

// WaitForCacheSync is true at the end, too: the manager goes on, and sees that it is over.
func (c *stoppableCache) WaitForCacheSync(ctx context.Context) bool {
	return c.Cache.WaitForCacheSync(ctx) || c.stopped() != nil
}
