// SPDX-License-Identifier: Apache-2.0

//go:build placement

package placement

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	discoverylisters "k8s.io/client-go/listers/discovery/v1"

	"github.com/patchbay-cni/patchbay/test/placement/bed"
)

// requestEvery makes 200 requests a second.
const requestEvery = 5 * time.Millisecond

// backend is one cluster's part of a Service, as a balancer in front of all clusters knows it.
type backend struct {
	slices discoverylisters.EndpointSliceNamespaceLister
	pods   corelisters.PodNamespaceLister
}

// endpoint is one Pod of a Service.
type endpoint struct{ cluster, pod string }

// traffic is requests to a Service, in turn to each ready endpoint of all clusters. KWOK's Pods
// have no process that answers: a request succeeds when its Pod is ready and is not on its way
// out, or takes bed.EndsAfter to end, as a Pod does that ends gracefully.
type traffic struct {
	service  string
	backends map[string]backend // by cluster
	sent     map[string]int     // by cluster
	failed   []string
}

// traffic sends 200 requests a second to a Service until stop is called, which fails the test
// for each request that failed. All n endpoints are ready before the first request.
func (w *world) traffic(t *testing.T, ns, service string, n int) (stop func()) {
	t.Helper()
	x := &traffic{service: service, backends: map[string]backend{}, sent: map[string]int{}}
	for name, c := range w.Clusters {
		client, err := kubernetes.NewForConfig(c.Config)
		if err != nil {
			t.Fatal(err)
		}
		f := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(ns))
		x.backends[name] = backend{f.Discovery().V1().EndpointSlices().Lister().EndpointSlices(ns), f.Core().V1().Pods().Lister().Pods(ns)}
		f.StartWithContext(t.Context())
		f.WaitForCacheSyncWithContext(t.Context())
		t.Cleanup(f.Shutdown)
	}
	eventually(t, fmt.Sprintf("Service %s has %d endpoints", service, n), func() error {
		all, err := x.endpoints()
		for _, e := range all {
			err = errors.Join(err, x.request(e))
		}
		return errors.Join(err, errorUnless(len(all) == n, "it has %v", all))
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		x.run(ctx)
	}()
	return func() {
		t.Helper()
		cancel()
		<-done
		t.Logf("%v requests by cluster, %d failed", x.sent, len(x.failed))
		if len(x.failed) > 0 {
			t.Errorf("%d requests failed, first: %s", len(x.failed), strings.Join(x.failed[:min(len(x.failed), 3)], "; "))
		}
	}
}

// run sends requests at a constant rate; those that it is late for it sends at once.
func (x *traffic) run(ctx context.Context) {
	start := time.Now()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Until(start.Add(time.Duration(n) * requestEvery))):
		}
		all, err := x.endpoints()
		if err == nil && len(all) == 0 {
			err = errors.New("no endpoint is ready in any cluster")
		}
		if err == nil {
			e := all[n%len(all)]
			x.sent[e.cluster]++
			err = x.request(e)
		}
		if err != nil {
			x.failed = append(x.failed, err.Error())
		}
	}
}

// endpoints are those that are ready, in a stable order.
func (x *traffic) endpoints() ([]endpoint, error) {
	var found []endpoint
	for cluster, b := range x.backends {
		all, err := b.slices.List(labels.SelectorFromSet(labels.Set{"kubernetes.io/service-name": x.service}))
		if err != nil {
			return nil, fmt.Errorf("list EndpointSlices in %s: %w", cluster, err)
		}
		for _, s := range all {
			for i := range s.Endpoints {
				if e := &s.Endpoints[i]; e.Conditions.Ready != nil && *e.Conditions.Ready && e.TargetRef != nil {
					found = append(found, endpoint{cluster, e.TargetRef.Name})
				}
			}
		}
	}
	slices.SortFunc(found, func(a, b endpoint) int { return strings.Compare(a.cluster+a.pod, b.cluster+b.pod) })
	return found, nil
}

// request is one request to a Pod.
func (x *traffic) request(e endpoint) error {
	pod, err := x.backends[e.cluster].pods.Get(e.pod)
	if err != nil {
		return fmt.Errorf("request to %s: %w", e.cluster, err)
	}
	ready := func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue }
	_, graceful := pod.Annotations[bed.EndsAfter]
	return errorUnless((pod.DeletionTimestamp == nil || graceful) && slices.ContainsFunc(pod.Status.Conditions, ready), "Pod %s in %s does not answer", e.pod, e.cluster)
}
