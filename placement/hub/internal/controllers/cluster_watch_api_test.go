// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package controllers

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// readsOf returns how often the hub has read the objects of a namespace since before.
func (c *requestCounter) readsOf(ns string, before map[string]int) (n int) {
	for request, count := range c.snapshot() {
		if strings.HasPrefix(request, "GET /api/v1/namespaces/"+ns+"/configmaps/") {
			n += count - before[request]
		}
	}
	return n
}

// A change of a Cluster's labels wakes the objects that it has, and those whose policy chooses clusters by the label.
func TestLabelsWakeWhatTheyConcern(t *testing.T) {
	h := newTestHub(t)
	for _, name := range []string{"wake-east", "wake-west"} {
		h.cluster(name, v1alpha1.ClusterSpec{})
	}
	inEast, inWest, chosen := h.namespace("wake-in-east"), h.namespace("wake-in-west"), h.namespace("wake-chosen")
	h.create(configMap(inEast, "web", "wake-east"))
	h.create(configMap(inWest, "web", "wake-west"))
	h.create(&v1alpha1.Placement{
		ObjectMeta: metav1.ObjectMeta{Namespace: chosen, Name: "all"},
		Spec: v1alpha1.PlacementSpec{Clusters: v1alpha1.ClusterChoice{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"wake-tier": "gold"}},
		}},
	})
	h.label("wake-west", `{"wake-tier":"gold"}`)
	h.create(configMap(chosen, "web", ""))
	h.expectWorks(configKey(inEast, "web"), map[string]int32{"wake-east": 0})
	h.expectWorks(configKey(inWest, "web"), map[string]int32{"wake-west": 0})
	h.expectWorks(configKey(chosen, "web"), map[string]int32{"wake-west": 0})
	all := []string{inEast, inWest, chosen}
	for _, tc := range []struct {
		reason, labels string
		wakes          []string
	}{
		{"No policy chooses by the label: it may change what the cluster gets.", `{"wake-rack":"7"}`, []string{inEast}},
		{"A policy chooses by the label, and not by this value.", `{"wake-tier":"silver"}`, []string{inEast}},
		{"A policy chooses the cluster now.", `{"wake-tier":"gold"}`, []string{inEast, chosen}},
	} {
		h.quietReads(all)
		before := hubRequests.snapshot()
		h.label("wake-east", tc.labels)
		h.eventually("the objects to be read", func(context.Context) error {
			for _, ns := range tc.wakes {
				if hubRequests.readsOf(ns, before) == 0 {
					return fmt.Errorf("%w: %s: %s", errNotYet, tc.reason, ns)
				}
			}
			return nil
		})
		h.quietReads(all)
		woken := map[string]bool{}
		for _, ns := range tc.wakes {
			woken[ns] = true
		}
		for _, ns := range all {
			if n := hubRequests.readsOf(ns, before); n > 0 && !woken[ns] {
				t.Errorf("%s %s: got %d reads, want none", tc.reason, ns, n)
			}
		}
	}
	h.expectWorks(configKey(chosen, "web"), map[string]int32{"wake-east": 0, "wake-west": 0})
}

// label sets labels of a Cluster.
func (h *testHub) label(cluster, labels string) {
	h.t.Helper()
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":%s}}`, labels))
	if err := h.client.Patch(h.t.Context(), &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: cluster}}, patch); err != nil {
		h.t.Fatal(err)
	}
}

// quietReads waits until the hub reads no object of these namespaces for more than a second: it decides again about an
// object within that time to write its status.
func (h *testHub) quietReads(spaces []string) {
	h.t.Helper()
	h.eventually("the reads to end", func(ctx context.Context) error {
		before := hubRequests.snapshot()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(1500 * time.Millisecond):
		}
		for _, ns := range spaces {
			if n := hubRequests.readsOf(ns, before); n > 0 {
				return fmt.Errorf("%w: %d reads of %s", errNotYet, n, ns)
			}
		}
		return nil
	})
}
