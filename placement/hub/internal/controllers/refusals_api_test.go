// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package controllers

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// A change that a cluster refuses is reported in an Event of the object, with object and field. It is
// reported once, however often the agent reports it.
func TestRefusalIsReportedOnce(t *testing.T) {
	h := newTestHub(t)
	ns := h.namespace("refused")
	h.cluster("refused-east", v1alpha1.ClusterSpec{})
	d := deployment(ns, "web", "refused-east", 2)
	h.create(d)
	key := deploymentKey(ns, "web")
	h.expectWorks(key, map[string]int32{"refused-east": 2})
	for _, field := range []string{"spec.selector", "spec.template"} {
		text := "Deployment refused/web: " + field + ": field is immutable"
		h.setAnnotation(d, refuseKey, text)
		h.expectEvent(ns, "Deployment", "web", "Invalid", "in refused-east: "+text)
	}
	h.setAnnotation(d, "touched", "yes")
	h.eventually("the hub to report the second refusal", func(ctx context.Context) error {
		w, a := &v1alpha1.Work{}, &v1alpha1.Assignment{}
		if err := h.client.Get(ctx, key.Work("refused-east"), w); err != nil {
			return err
		}
		if err := h.client.Get(ctx, key.Assignment(), a); err != nil {
			return err
		}
		if w.Status.Revision < 4 || len(a.Status.Clusters) != 1 || a.Status.Clusters[0].Revision < 4 {
			return fmt.Errorf("%w: %d, %+v", errNotYet, w.Status.Revision, a.Status.Clusters)
		}
		return nil
	})
	var events corev1.EventList
	if err := h.client.List(t.Context(), &events, client.InNamespace(ns)); err != nil {
		t.Fatal(err)
	}
	told := map[string]int32{}
	for _, e := range events.Items {
		if e.Reason == "Invalid" {
			told[e.Message] += e.Count
		}
	}
	if len(told) != 2 {
		t.Errorf("Events: got %v, want two refusals", events)
	}
	for text, n := range told {
		if n != 1 {
			t.Errorf("%d Events: %s", n, text)
		}
	}
}
