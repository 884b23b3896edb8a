// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/patchbay-cni/patchbay/placement/hub"
	"github.com/patchbay-cni/patchbay/relist"
	"github.com/patchbay-cni/patchbay/securemetrics"
)

// leaseName is the Lease that the replicas compete for.
const leaseName = "patchbay-hub"

// drainTimeout bounds what is under way when the hub is asked to end.
const drainTimeout = 15 * time.Second

// newManager wires the hub's parts; nothing runs yet.
func newManager(ctx context.Context, cfg *rest.Config, o *options) (manager.Manager, error) {
	cfg = rest.CopyConfig(cfg)
	// Requests are bounded by workers, and the API server shares itself out with
	// priority and fairness: waiting here besides would only add latency.
	cfg.QPS = -1
	relist.Wrap(cfg)
	opts, err := hub.Options(ctx)
	if err != nil {
		return nil, err
	}
	drain := drainTimeout
	opts.Logger = logr.FromContextOrDiscard(ctx)
	opts.LeaderElection = o.elect
	opts.LeaderElectionID = leaseName
	opts.LeaderElectionNamespace = o.namespace
	opts.LeaderElectionReleaseOnCancel = true // main ends when the manager has
	opts.GracefulShutdownTimeout = &drain
	m, err := manager.New(cfg, opts)
	if err != nil {
		return nil, fmt.Errorf("make manager: %w", err)
	}
	if err := hub.Add(ctx, m, hub.Config{Workers: o.workers}); err != nil {
		return nil, fmt.Errorf("set up the hub: %w", err)
	}
	s, err := newServer(o.http, m.GetCache().WaitForCacheSync)
	if err != nil {
		return nil, err
	}
	scrapes, err := securemetrics.Listen(o.scrapes, m.GetConfig(), metrics.Registry, m.GetLogger())
	if err != nil {
		return nil, err
	}
	if err := errors.Join(m.Add(s), m.Add(scrapes)); err != nil {
		return nil, fmt.Errorf("add health checks and metrics: %w", err)
	}
	return m, nil
}
