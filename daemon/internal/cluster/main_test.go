// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package cluster

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/testr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

func TestMain(m *testing.M) { apitest.Main(m) }

// node is the node that tests run as.
const node = "node-1"

// patience is how long a test waits for something that must happen.
const patience = 2 * time.Minute

// tryPatience bounds one look, so that a request that hangs is made again.
const tryPatience = 30 * time.Second

// connect returns a connection with the rights that deployments/ gives the
// daemon, and no more.
func connect(t *testing.T, env *apitest.Env) *Connection {
	t.Helper()
	conn, err := Connect(env.ConfigAs(apitest.NodeDaemon(node)), node)
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// logged returns a context whose logger writes to the test's log, and that ends
// with the test.
func logged(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ctx = logr.NewContext(ctx, testr.New(t))
	t.Cleanup(cancel)
	return ctx
}

// start runs f until the test ends, and waits for its end.
func start(ctx context.Context, t *testing.T, f func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

// wait polls until f succeeds.
func wait(t *testing.T, what string, f func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		try, end := context.WithTimeout(ctx, tryPatience)
		err := f(try)
		end()
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("waited %s for %s: %v", patience, what, err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// clusterNetwork creates a network with a name of its own and a /24.
func clusterNetwork(t *testing.T, env *apitest.Env) *v1.ClusterNetwork {
	t.Helper()
	name := apitest.Name("net")
	cn := &v1.ClusterNetwork{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1.NetworkSpec{NetworkID: "n" + name[len(name)-8:], NetworkType: "macvlan",
			Options: v1.NetworkOptions{Device: "ens4", CIDR: "10.9.0.0/24"}},
	}
	if err := env.Client.Create(t.Context(), cn); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = env.Client.Delete(context.Background(), cn) })
	return cn
}

// ref names a ClusterNetwork.
func ref(cn *v1.ClusterNetwork) network.Ref {
	return network.Ref{Kind: v1.KindClusterNetwork, Name: cn.Name}
}
