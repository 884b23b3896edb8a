// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/patchbay-cni/patchbay/controller/addresses"
	"github.com/patchbay-cni/patchbay/controller/networks"
)

// addReadiness has the leader say on networks where their links are up.
func addReadiness(ctx context.Context, m manager.Manager, registry *prometheus.Registry) error {
	events, err := addresses.NewRecorder(ctx, m.GetConfig(), m.GetScheme())
	if err != nil {
		return err
	}
	if err := networks.Add(m, networks.Config{Registry: registry, Events: events}); err != nil {
		return fmt.Errorf("set up the controller of networks' readiness: %w", err)
	}
	return nil
}
