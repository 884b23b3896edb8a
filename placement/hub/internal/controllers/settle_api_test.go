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

// versions are the resource versions of all that the hub writes in a namespace, and of
// what is in its clusters' namespaces.
func (b *bench) versions(ctx context.Context, ns, prefix string) (string, error) {
	var text strings.Builder
	var assignments v1alpha1.AssignmentList
	var works v1alpha1.WorkList
	var clusters v1alpha1.ClusterList
	for _, list := range []client.ObjectList{&assignments, &works, &clusters} {
		if err := b.client.List(ctx, list); err != nil {
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

// quiet waits until nothing is written for a while.
func (b *bench) quiet(ns, prefix string, d time.Duration) {
	b.t.Helper()
	last, since := "", time.Now()
	b.eventually("nothing to be written any more", func(ctx context.Context) error {
		now, err := b.versions(ctx, ns, prefix)
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

// What is settled is not written again.
func TestSettledIsQuiet(t *testing.T) {
	b := newBench(t)
	ns := b.namespace("quiet")
	b.cluster("quiet-east", v1alpha1.ClusterSpec{})
	b.cluster("quiet-west", v1alpha1.ClusterSpec{})
	d := deployment(ns, "web", "quiet-east,quiet-west", 5)
	b.create(d)
	b.runs(deploymentKey(ns, "web"), map[string]int32{"quiet-east": 3, "quiet-west": 2})
	b.quiet(ns, "quiet-", 5*time.Second)
}
