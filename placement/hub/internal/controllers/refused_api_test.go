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

// What a cluster refuses for good is told at the object, in an Event with object and
// field; once, however often the cluster says so.
func TestRefusalIsTold(t *testing.T) {
	b := newBench(t)
	ns := b.namespace("refused")
	b.cluster("refused-east", v1alpha1.ClusterSpec{})
	d := deployment(ns, "web", "refused-east", 2)
	b.create(d)
	key := deploymentKey(ns, "web")
	b.runs(key, map[string]int32{"refused-east": 2})
	for _, field := range []string{"spec.selector", "spec.template"} {
		text := "Deployment refused/web: " + field + ": field is immutable"
		b.mark(d, refuseKey, text)
		b.tells(ns, "Deployment", "web", "Invalid", "in refused-east: "+text)
	}
	b.mark(d, "touched", "yes")
	b.eventually("the cluster to refuse that, too, and the hub to say so", func(ctx context.Context) error {
		w, a := &v1alpha1.Work{}, &v1alpha1.Assignment{}
		if err := b.client.Get(ctx, key.work("refused-east"), w); err != nil {
			return err
		}
		if err := b.client.Get(ctx, key.assignment(), a); err != nil {
			return err
		}
		if w.Status.Revision < 4 || len(a.Status.Clusters) != 1 || a.Status.Clusters[0].Revision < 4 {
			return fmt.Errorf("%w: %d, %+v", errNotYet, w.Status.Revision, a.Status.Clusters)
		}
		return nil
	})
	var events corev1.EventList
	if err := b.client.List(t.Context(), &events, client.InNamespace(ns)); err != nil {
		t.Fatal(err)
	}
	told := map[string]int32{}
	for _, e := range events.Items {
		if e.Reason == "Invalid" {
			told[e.Message] += e.Count
		}
	}
	if len(told) != 2 {
		t.Errorf("told: got %v, want two refusals", told)
	}
	for text, n := range told {
		if n != 1 {
			t.Errorf("told %d times: %s", n, text)
		}
	}
}
