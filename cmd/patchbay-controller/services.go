// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"maps"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/patchbay-cni/patchbay/controller/addresses"
	"github.com/patchbay-cni/patchbay/controller/networks"
	"github.com/patchbay-cni/patchbay/controller/ranges"
	services "github.com/patchbay-cni/patchbay/svcwatcher/cluster"
)

// addServices makes the leader keep the EndpointSlices of Services on networks.
func addServices(ctx context.Context, m manager.Manager, registry prometheus.Registerer, used *ranges.Watcher) error {
	events, err := addresses.NewRecorder(ctx, m.GetConfig(), m.GetScheme())
	if err != nil {
		return err
	}
	if err := services.Add(ctx, m, services.Config{Registry: registry, Events: events, Ranges: used}); err != nil {
		return fmt.Errorf("set up Services: %w", err)
	}
	return nil
}

// cached is what the parts of the controller keep of the objects that they cache.
func cached() map[client.Object]cache.ByObject {
	all := addresses.Cached()
	maps.Copy(all, services.Cached())
	return networks.Cached(all)
}
