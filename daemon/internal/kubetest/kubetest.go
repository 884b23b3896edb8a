// SPDX-License-Identifier: Apache-2.0

// Package kubetest has what the API-server tests of the daemon's packages share: a
// connection with the daemon's rights, background workers, polling and a sample network.
package kubetest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/testr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/daemon/internal/kubeclient"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

// Node is the name of the node that tests run as.
const Node = "node-1"

const (
	// eventuallyTimeout bounds Eventually.
	eventuallyTimeout = 2 * time.Minute
	// attemptTimeout bounds one attempt of Eventually, so that a request that hangs is
	// sent again.
	attemptTimeout = 30 * time.Second
)

// Connect returns a connection of the node Node.
func Connect(t *testing.T, env *apitest.Env) *kubeclient.Connection {
	t.Helper()
	return ConnectAs(t, env, Node)
}

// ConnectAs returns a connection with exactly the rights that deployments/ gives the
// daemon of that node.
func ConnectAs(t *testing.T, env *apitest.Env, node string) *kubeclient.Connection {
	t.Helper()
	conn, err := kubeclient.Connect(env.ConfigAs(apitest.NodeDaemon(node)), node)
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// LogContext returns a context that ends with the test and whose logger writes to the
// test's log.
func LogContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	t.Cleanup(cancel)
	return logr.NewContext(ctx, testr.New(t))
}

// Start runs f in the background. The end of the test stops it and waits for it.
func Start(ctx context.Context, t *testing.T, f func(context.Context) error) {
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

// Eventually calls f until it succeeds, and fails the test after 2 minutes. The text
// completes the sentence "waited for ...".
func Eventually(t *testing.T, what string, f func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), eventuallyTimeout)
	defer cancel()
	for {
		attempt, end := context.WithTimeout(ctx, attemptTimeout)
		err := f(attempt)
		end()
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("waited %s for %s: %v", eventuallyTimeout, what, err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// ClusterNetwork creates a ClusterNetwork with a unique name and a /24, and deletes it at
// the end of the test.
func ClusterNetwork(t *testing.T, env *apitest.Env) *v1.ClusterNetwork {
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

// Ref returns the reference of a ClusterNetwork.
func Ref(cn *v1.ClusterNetwork) network.Ref {
	return network.Ref{Kind: v1.KindClusterNetwork, Name: cn.Name}
}
