// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package addresses

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/kube"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

// slowCache returns its informers of networks, to which the controller adds its handlers, only
// after release is closed.
type slowCache struct {
	cache.Cache
	release chan struct{}
}

func (c slowCache) GetInformer(ctx context.Context, obj client.Object, opts ...cache.InformerGetOption) (cache.Informer, error) {
	i, err := c.Cache.GetInformer(ctx, obj, opts...)
	if slices.Contains(kube.NetworkKinds(), obj.GetObjectKind().GroupVersionKind().Kind) {
		select {
		case <-c.release:
		case <-ctx.Done():
		}
	}
	return i, err
}

// slowManager is a manager with that cache.
type slowManager struct {
	manager.Manager
	cache slowCache
}

func (m slowManager) GetCache() cache.Cache { return m.cache }

// A network that is created while the watches start is seen by the first sweep or by a watch.
func TestNetworkThatComesWhileWatchesStart(t *testing.T) {
	t.Parallel()
	slow := slowCache{release: make(chan struct{})}
	f := startOn(t, apitest.New(t), func(m manager.Manager) manager.Manager {
		slow.Cache = m.GetCache()
		return slowManager{m, slow}
	}, func(cfg *Config) { cfg.SweepInterval = time.Hour })
	if !slow.WaitForCacheSync(t.Context()) {
		t.Fatal("the cache did not sync")
	}
	cn := f.network(&v1.IPAMStatus{V4: bitmap()})
	written := f.get(t.Context(), cn).ResourceVersion
	f.eventually("the cache to have the network as written", func(ctx context.Context) error {
		cached := kube.PartialMetadata(v1.KindClusterNetwork)
		if err := slow.Get(ctx, client.ObjectKeyFromObject(cn), cached); err != nil {
			return err
		}
		if cached.ResourceVersion != written {
			return fmt.Errorf("version %s, want %s", cached.ResourceVersion, written)
		}
		return nil
	})
	close(slow.release)
	f.condition(cn, v1.ConditionAddressesAvailable, metav1.ConditionTrue, v1.ReasonAddressesSufficient, "")
}
