// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package controllers

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// versions returns the resource versions of everything that the hub writes in a namespace and in its
// clusters' namespaces.
func (h *testHub) versions(ctx context.Context, ns, prefix string) (string, error) {
	var text strings.Builder
	var assignments v1alpha1.AssignmentList
	var works v1alpha1.WorkList
	var clusters v1alpha1.ClusterList
	for _, list := range []client.ObjectList{&assignments, &works, &clusters} {
		if err := h.client.List(ctx, list); err != nil {
			return "", err
		}
	}
	for _, a := range assignments.Items {
		if a.Namespace == ns {
			fmt.Fprintln(&text, "Assignment", a.Name, a.ResourceVersion)
		}
	}
	for _, w := range works.Items {
		if strings.HasPrefix(w.Namespace, v1alpha1.ClusterNamespacePrefix+prefix) {
			fmt.Fprintln(&text, "Work", w.Namespace, w.Name, w.ResourceVersion)
		}
	}
	for _, c := range clusters.Items {
		if strings.HasPrefix(c.Name, prefix) {
			fmt.Fprintln(&text, "Cluster", c.Name, c.ResourceVersion)
		}
	}
	return text.String(), nil
}

// quiet waits until nothing is written for this long.
func (h *testHub) quiet(ns, prefix string, d time.Duration) {
	h.t.Helper()
	last, since := "", time.Now()
	h.eventually("the writes to end", func(ctx context.Context) error {
		now, err := h.versions(ctx, ns, prefix)
		if err != nil {
			return err
		}
		if now != last {
			last, since = now, time.Now()
		}
		if time.Since(since) < d {
			return fmt.Errorf("%w: quiet for %s, last:\n%s", errNotYet, time.Since(since), last)
		}
		return nil
	})
}

// The hub does not write again what has not changed.
func TestIdleHubWritesNothing(t *testing.T) {
	h := newTestHub(t)
	ns := h.namespace("quiet")
	h.cluster("quiet-east", v1alpha1.ClusterSpec{})
	h.cluster("quiet-west", v1alpha1.ClusterSpec{})
	d := deployment(ns, "web", "quiet-east,quiet-west", 5)
	h.create(d)
	h.expectWorks(deploymentKey(ns, "web"), map[string]int32{"quiet-east": 3, "quiet-west": 2})
	h.quiet(ns, "quiet-", 5*time.Second)
}

// An object that only a Deployment in no cluster needs gets no Assignment: the hub would create and
// delete it for ever.
func TestIdleHubWritesNothingForUnplacedDependencies(t *testing.T) {
	h := newTestHub(t)
	ns := h.namespace("unplaced")
	h.cluster("unplaced-east", v1alpha1.ClusterSpec{})
	h.create(configMap(ns, "web", ""))
	d := deployment(ns, "web", "unplaced-east", 1)
	h.create(d)
	h.expectWorks(configKey(ns, "web"), map[string]int32{"unplaced-east": 0})
	h.annotate(d, "")
	h.expectWorks(configKey(ns, "web"), map[string]int32{})
	h.quiet(ns, "unplaced-", 5*time.Second)
}
