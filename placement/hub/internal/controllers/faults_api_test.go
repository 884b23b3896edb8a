// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package controllers

import (
	"context"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/apply"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/kinds"
	"github.com/patchbay-cni/patchbay/test/apitest"
	"github.com/patchbay-cni/patchbay/test/placement/bed"
)

// A failure between a hub and its API server does not change the result: no object runs in fewer
// replicas than before, no Work is created twice, and clusters get the stored data of Secrets. Each
// failure mode has an API server of its own, since a hub places the objects of all namespaces. Each
// takes about 20 s, and 30 s for each subject whose request hangs.
func TestFaults(t *testing.T) {
	t.Parallel()
	for _, mode := range append(apitest.FailureModes(),
		apitest.LaggingCache("assignments", apply.CacheDelay+time.Second), apitest.LaggingCache("works", apply.CacheDelay+time.Second)) {
		t.Run(mode.Name, func(t *testing.T) {
			t.Parallel()
			t.Log(mode.Reason)
			env := apitest.New(t)
			h := newTestHubOn(t, env, 6*time.Minute)
			if err := bed.Install(t.Context(), env.Config, "placement", "CustomResourceDefinition"); err != nil {
				t.Fatal(err)
			}
			config, tally := mode.InjectPerSubject(env.Config, subject)
			runHub(t, config)
			h.placeMoveAndDelete()
			for _, name := range mustFail(mode.Name) {
				if tally.Hits(name) == 0 {
					t.Errorf("%s\nno request for %s has failed, so the test proves nothing about them: %s", mode.Reason, name, tally)
				}
			}
		})
	}
}

// subject groups requests by what they are about; "other" is not about a placed object.
func subject(r *http.Request) string {
	ns, resource := apitest.RequestResource(r)
	_, of := kinds.ClusterOfNamespace(ns)
	switch {
	case resource == "works" || resource == "assignments":
		return resource
	case resource == "secrets" && of:
		return "data"
	case slices.Contains([]string{"deployments", "configmaps", "secrets"}, resource) && ns != v1alpha1.SystemNamespace:
		return "placed"
	}
	return "other"
}

// mustFail returns the subjects whose requests a failure mode must affect.
func mustFail(mode string) []string {
	switch mode {
	case "WriteHangs":
		return []string{"works", "assignments", "data", "placed"}
	case "ReadHangs":
		return []string{"data", "placed"} // Works and Assignments come from watches
	case "Unread":
		return []string{"data GET", "placed GET"}
	case "WatchCut", "WatchLate":
		return []string{"works GET", "assignments GET", "placed GET"}
	case "Behind assignments":
		return []string{"assignments GET"}
	case "Behind works":
		return []string{"works GET"}
	}
	return []string{
		"works POST", "works PATCH", "works DELETE", "assignments POST", "assignments PUT", "assignments DELETE",
		"data POST", "data PUT", "data DELETE", "placed PATCH",
	}
}

// runHub runs a hub until the test ends, and starts it again after a failed start, as kubelet does.
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

// newProcess returns a hub as its program makes it, without graceful shutdown.
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
	return m, Add(ctx, m, Config{preflightWait: time.Millisecond, stableDefault: stableInTests})
}
