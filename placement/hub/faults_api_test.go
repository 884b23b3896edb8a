// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package hub

import (
	"context"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/patchbay-cni/patchbay/test/apitest"
	"github.com/patchbay-cni/patchbay/test/placement/bed"
)

// Whatever fails between a hub and its API server, it does what it does without: nothing runs
// in fewer replicas than before, and no Work is made twice. Each trouble has an API server of its own,
// since a hub places what is in all namespaces: about 20 s each, and the 30 s of requests that hang.
func TestFaults(t *testing.T) {
	t.Parallel()
	for _, trouble := range append(apitest.Troubles(), apitest.Behind("assignments", forget+time.Second)) {
		t.Run(trouble.Name, func(t *testing.T) {
			t.Parallel()
			t.Log(trouble.Reason)
			env := apitest.New(t)
			b := newBenchOn(t, env, 6*time.Minute)
			if err := bed.Install(t.Context(), env.Config, "placement", "CustomResourceDefinition"); err != nil {
				t.Fatal(err)
			}
			runHub(t, trouble.Meet(env.Config))
			b.live()
		})
	}
}

// runHub runs a hub until the test ends, and starts it again when it does not come up, as kubelet
// does.
func runHub(t *testing.T, config *rest.Config) {
	t.Helper()
	ctx, cancel := context.WithCancel(logr.NewContext(context.Background(), logger()))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		wait.UntilWithContext(ctx, func(ctx context.Context) {
			if m, err := newProcess(ctx, config); err == nil {
				_ = m.Start(ctx)
			}
		}, 100*time.Millisecond)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
}

// newProcess is a hub as its program makes it, which nothing waits for when it ends.
func newProcess(ctx context.Context, config *rest.Config) (manager.Manager, error) {
	opts, err := Options(ctx)
	if err != nil {
		return nil, err
	}
	opts.Logger = logr.FromContextOrDiscard(ctx)
	opts.GracefulShutdownTimeout = new(time.Duration)
	m, err := manager.New(config, opts)
	if err != nil {
		return nil, err
	}
	return m, Add(ctx, m, Config{freshWait: time.Millisecond})
}
