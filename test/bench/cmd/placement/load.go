// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/test/lab/process"
)

// look is how often the clusters are asked: by so much the times may be too long.
const look = 5 * time.Millisecond

func object(name string, value int, clusters ...string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name, Annotations: map[string]string{
			v1alpha1.ClustersAnnotation: strings.Join(clusters, ","),
		}},
		Data: map[string]string{"value": strconv.Itoa(value), "filler": strings.Repeat("x", 1024)},
	}
}

// spread changes one object again and again, and returns how long each change took to
// each cluster, from the moment that the hub's API server had it.
func (l *lab) spread(ctx context.Context) ([]time.Duration, error) {
	o := object("spread", 0, l.names...)
	if err := l.bed.Hub.Client.Create(ctx, o); err != nil {
		return nil, fmt.Errorf("create: %w", err)
	}
	if _, err := l.arrive(ctx, o); err != nil { // agents join first
		return nil, err
	}
	var all []time.Duration
	for i := range l.changes {
		o.Data["value"] = strconv.Itoa(i + 1)
		if err := l.bed.Hub.Client.Update(ctx, o); err != nil {
			return nil, fmt.Errorf("change: %w", err)
		}
		times, err := l.arrive(ctx, o)
		if err != nil {
			return nil, err
		}
		all = append(all, times...)
	}
	return all, nil
}

// arrive waits until all clusters have the value.
func (l *lab) arrive(ctx context.Context, o *corev1.ConfigMap) ([]time.Duration, error) {
	begun, times := time.Now(), make([]time.Duration, len(l.names))
	var g errgroup.Group
	for i, name := range l.names {
		g.Go(func() error {
			there := &corev1.ConfigMap{}
			for there.Data["value"] != o.Data["value"] {
				select {
				case <-time.After(look):
				case <-ctx.Done():
					return fmt.Errorf("await cluster %s: %w", name, ctx.Err())
				}
				if err := l.bed.Clusters[name].Client.Get(ctx, client.ObjectKeyFromObject(o), there); client.IgnoreNotFound(err) != nil {
					return fmt.Errorf("read in cluster %s: %w", name, err)
				}
			}
			times[i] = time.Since(begun)
			return nil
		})
	}
	return times, g.Wait()
}

// fill makes that many objects, each in one cluster, and waits until all have arrived.
func (l *lab) fill(ctx context.Context, prefix string, n int, only string) error {
	const parallel = 8
	var g errgroup.Group
	g.SetLimit(parallel)
	for i := range n {
		g.Go(func() error {
			cluster := only
			if cluster == "" {
				cluster = l.names[1+i%(len(l.names)-1)]
			}
			return l.bed.Hub.Client.Create(ctx, object(fmt.Sprintf("%s-%d", prefix, i), i, cluster))
		})
	}
	if err := g.Wait(); err != nil {
		return fmt.Errorf("create objects: %w", err)
	}
	for {
		var list v1alpha1.WorkList
		if err := l.bed.Hub.Client.List(ctx, &list); err != nil {
			return fmt.Errorf("list Works: %w", err)
		}
		done := 0
		for _, w := range list.Items {
			if w.Status.Revision == w.Spec.Revision && strings.HasPrefix(w.Spec.Source.Name, prefix+"-") {
				done++
			}
		}
		if done == n {
			return nil
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return fmt.Errorf("await %d objects, %d are there: %w", n, done, ctx.Err())
		}
	}
}

// resident reads the memory of a process that was left alone, in MiB.
func resident(ctx context.Context, id process.ID) (float64, error) {
	select {
	case <-time.After(rest):
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", id.PID))
	if err != nil {
		return 0, fmt.Errorf("read memory: %w", err)
	}
	for line := range bytes.Lines(raw) {
		if rest, ok := bytes.CutPrefix(line, []byte("VmRSS:")); ok {
			kib, err := strconv.Atoi(string(bytes.Fields(rest)[0]))
			return float64(kib) / 1024, err
		}
	}
	return 0, fmt.Errorf("read memory of process %d: no VmRSS", id.PID)
}
