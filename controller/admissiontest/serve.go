// SPDX-License-Identifier: Apache-2.0

package admissiontest

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/patchbay-cni/patchbay/controller/internal/addresses"
	"github.com/patchbay-cni/patchbay/controller/internal/clusterranges"
	"github.com/patchbay-cni/patchbay/controller/internal/webhook"
	"github.com/patchbay-cni/patchbay/test/apitest"
	"github.com/patchbay-cni/patchbay/test/lab/controlplane"
)

// namespace is the one of deployments/.
const namespace = "patchbay-system"

// Serve runs admission until stop is called. It returns when the API server uses it. Clock is that
// of the certificates; time.Now when nil.
func Serve(ctx context.Context, env *apitest.Env, clock func() time.Time) (stop func(), err error) {
	port, err := FreePort()
	if err != nil {
		return nil, err
	}
	stop, err = Run(ctx, env, port, clock)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(install(ctx, env, port, webhookTimeoutSeconds), Await(ctx, env)); err != nil {
		stop()
		return nil, err
	}
	return stop, nil
}

// Run is Serve on a given port, for webhook configurations that the caller installs.
func Run(ctx context.Context, env *apitest.Env, port int, clock func() time.Time) (stop func(), err error) {
	m, err := manager.New(env.ConfigAs(apitest.Controller()), manager.Options{
		Metrics: metricsserver.Options{BindAddress: "0"}, Logger: logr.Discard(),
	})
	if err != nil {
		return nil, fmt.Errorf("make manager: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	ranges := clusterranges.New(m.GetConfig(), nil, logr.Discard())
	events, err := addresses.NewEventRecorder(ctx, m.GetConfig(), m.GetScheme())
	if err != nil {
		cancel()
		return nil, err
	}
	_, err = webhook.Register(ctx, m, webhook.Options{
		Namespace: namespace, Host: "127.0.0.1", Port: port, ExtraHosts: []string{"127.0.0.1"}, Clock: clock, Ranges: ranges, Events: events,
	})
	if err := errors.Join(err, m.Add(ranges)); err != nil {
		cancel()
		return nil, err
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = m.Start(ctx)
	}()
	return func() { cancel(); <-done }, nil
}

// FreePort returns a free TCP port of the loopback address, which the kernel assigns to no other
// program.
func FreePort() (int, error) {
	port, err := controlplane.FreePort(netip.AddrFrom4([4]byte{127, 0, 0, 1}))
	return int(port), err
}
