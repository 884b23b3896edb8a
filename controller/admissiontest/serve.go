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

	"github.com/patchbay-cni/patchbay/controller/internal/clusterranges"
	"github.com/patchbay-cni/patchbay/controller/internal/webhook"
	"github.com/patchbay-cni/patchbay/test/apitest"
	"github.com/patchbay-cni/patchbay/test/lab/controlplane"
)

// namespace is that of deployments/.
const namespace = "patchbay-system"

// Serve runs admission until the returned function is called, and waits until the API
// server asks it. Clock is for the certificates' lives; nil is time.Now.
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

// Run runs admission on a port, for configurations that are there, or will be.
func Run(ctx context.Context, env *apitest.Env, port int, clock func() time.Time) (stop func(), err error) {
	m, err := manager.New(env.ConfigAs(apitest.Controller()), manager.Options{
		Metrics: metricsserver.Options{BindAddress: "0"}, Logger: logr.Discard(),
	})
	if err != nil {
		return nil, fmt.Errorf("make manager: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	used := clusterranges.New(m.GetConfig(), nil, logr.Discard())
	_, err = webhook.Register(ctx, m, webhook.Options{
		Namespace: namespace, Host: "127.0.0.1", Port: port, ExtraHosts: []string{"127.0.0.1"}, Clock: clock, Ranges: used,
	})
	if err := errors.Join(err, m.Add(used)); err != nil {
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

// FreePort returns a TCP port of the loopback address that nobody listens on, and that
// nobody is given who asks for any.
func FreePort() (int, error) {
	port, err := controlplane.FreePort(netip.AddrFrom4([4]byte{127, 0, 0, 1}))
	return int(port), err
}
