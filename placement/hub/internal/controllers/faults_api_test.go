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
	"github.com/patchbay-cni/patchbay/test/apitest"
	"github.com/patchbay-cni/patchbay/test/placement/bed"
)

// Whatever fails between a hub and its API server, it does what it does without: nothing runs
// in fewer replicas than before, no Work is made twice, and clusters get the data of Secrets that
// are stored. Each trouble has an API server of its own, since a hub places what is in all
// namespaces: about 20 s each, and 30 s for each subject whose request hangs.
func TestFaults(t *testing.T) {
	t.Parallel()
	for _, trouble := range append(apitest.FailureModes(),
		apitest.LaggingCache("assignments", forget+time.Second), apitest.LaggingCache("works", forget+time.Second)) {
		t.Run(trouble.Name, func(t *testing.T) {
			t.Parallel()
			t.Log(trouble.Reason)
			env := apitest.New(t)
			b := newBenchOn(t, env, 6*time.Minute)
			if err := bed.Install(t.Context(), env.Config, "placement", "CustomResourceDefinition"); err != nil {
				t.Fatal(err)
			}
			config, tally := trouble.InjectPerSubject(env.Config, subject)
			runHub(t, config)
			b.live()
			for _, name := range struck(trouble.Name) {
				if tally.Hits(name) == 0 {
					t.Errorf("%s\nno request for %s was hit, so that nothing is proven of them: %s", trouble.Reason, name, tally)
				}
			}
		})
	}
}

// subject is what of placement a request is for; "other" is what is not placement of an object.
func subject(r *http.Request) string {
	ns, resource := apitest.RequestResource(r)
	_, of := clusterOf(ns)
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

// struck are the requests that a trouble must hit.
func struck(trouble string) []string {
	switch trouble {
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
