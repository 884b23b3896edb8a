// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package works_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// faultyLink is a client configuration whose requests fail when the test says so.
type faultyLink struct {
	*rest.Config

	failing atomic.Bool
}

func newFaultyLink(config *rest.Config, fails func(*http.Request) bool) *faultyLink {
	l := &faultyLink{Config: rest.CopyConfig(config)}
	l.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if l.failing.Load() && fails(r) {
				return nil, errors.New("connection refused")
			}
			return next.RoundTrip(r)
		})
	})
	return l
}

// roundTripper is a function that implements http.RoundTripper.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// awaitDelay waits for a heartbeat after this call whose age of the oldest unreported change is as expected. It is
// negative while the agent does not know it.
func (b *testAgent) awaitDelay(t *testing.T, what string, ok func(time.Duration) bool) {
	t.Helper()
	began := time.Now()
	eventually(t, what, func() error {
		lease := &coordinationv1.Lease{}
		if err := b.Get(t.Context(), client.ObjectKey{Namespace: clusterNamespace, Name: v1alpha1.HeartbeatLease}, lease); err != nil {
			return err
		}
		text, at, dates := strings.Cut(lease.Annotations[v1alpha1.ReportDelayAnnotation], "@")
		delay, err := time.ParseDuration(text)
		if text == "" {
			delay, err = -1, nil
		}
		if !dates || err != nil || at != lease.Spec.RenewTime.UTC().Format(metav1.RFC3339Micro) || lease.Spec.RenewTime.Time.Before(began) || !ok(delay) {
			return fmt.Errorf("delay %q at %s, renewed %s", text, at, lease.Spec.RenewTime)
		}
		return nil
	})
}

// While the cluster's API server is dead, the heartbeat of its agent has no date. It has one again when the agent has
// reported what changed meanwhile.
func TestDeadAPIServerDatesReports(t *testing.T) {
	t.Parallel()
	b := prepare(t)
	local := newFaultyLink(b.local(), func(*http.Request) bool { return true })
	b.runBetween(t, b.env.Config, local.Config)
	w := b.work(t, "dated", nil, manifest(t, "configmaps", configMap("dated", "first")))
	b.awaitWork(t, w, "the Work is applied", applied(1))
	b.awaitDelay(t, "everything is reported", func(d time.Duration) bool { return d == 0 })
	local.failing.Store(true)
	b.awaitDelay(t, "the heartbeat has no date", func(d time.Duration) bool { return d < 0 })
	o := b.object(t, "v1", "ConfigMap", "default", "dated")
	if o == nil {
		t.Fatal("the ConfigMap is missing")
	}
	if err := b.Delete(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	local.failing.Store(false)
	b.awaitDelay(t, "everything is reported again", func(d time.Duration) bool { return d == 0 })
	fresh := &v1alpha1.Work{}
	if err := b.Get(t.Context(), client.ObjectKeyFromObject(w), fresh); err != nil {
		t.Fatal(err)
	}
	again := b.object(t, "v1", "ConfigMap", "default", "dated")
	if again == nil || len(fresh.Status.Manifests) != 1 || fresh.Status.Manifests[0].UID != again.GetUID() {
		t.Errorf("the heartbeat says that everything is reported, and the Work has not what changed meanwhile: %+v, want UID of %v", fresh.Status, again)
	}
}

// A change that the agent cannot report makes its heartbeats older, until the hub has the report. It is reported as
// soon as the hub is reachable again.
func TestUnreportedChangeDatesReports(t *testing.T) {
	t.Parallel()
	b := prepare(t)
	isReport := func(r *http.Request) bool {
		return r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, "/status") && strings.Contains(r.URL.Path, "/works/")
	}
	hub := newFaultyLink(b.env.Config, isReport)
	b.runBetween(t, hub.Config, b.local())
	w := b.work(t, "late", nil, manifest(t, "configmaps", configMap("late", "first")))
	b.awaitWork(t, w, "the Work is applied", applied(1))
	b.awaitDelay(t, "everything is reported", func(d time.Duration) bool { return d == 0 })
	hub.failing.Store(true)
	before := b.object(t, "v1", "ConfigMap", "default", "late")
	if err := b.Delete(t.Context(), before); err != nil {
		t.Fatal(err)
	}
	var again *unstructured.Unstructured
	eventually(t, "the agent repairs the ConfigMap", func() error {
		if again = b.object(t, "v1", "ConfigMap", "default", "late"); again == nil || again.GetUID() == before.GetUID() {
			return errors.New("not yet")
		}
		return nil
	})
	b.awaitDelay(t, "the change is not reported", func(d time.Duration) bool { return d > 0 })
	b.awaitDelay(t, "the change gets older", func(d time.Duration) bool { return d > 10*time.Second })
	hub.failing.Store(false)
	b.awaitDelay(t, "the change is reported", func(d time.Duration) bool { return d == 0 })
	fresh := &v1alpha1.Work{}
	if err := b.Get(t.Context(), client.ObjectKeyFromObject(w), fresh); err != nil {
		t.Fatal(err)
	}
	if got := fresh.Status.Manifests[0].UID; got != again.GetUID() {
		t.Errorf("UID in the report: got %s, want %s", got, again.GetUID())
	}
}
