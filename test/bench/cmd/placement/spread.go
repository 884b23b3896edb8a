// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/test/bench/measure"
)

// contender brings a value of its object into all clusters.
type contender struct {
	name, object string
	change       func(ctx context.Context, value string) error
	p50, p99     measure.Series
	max          measure.Series
}

// spread changes one object that is in all clusters, again and again, at the hub and
// directly, and prints how long each change took to each cluster.
func (l *lab) spread(ctx context.Context, beside string) error {
	contenders := []*contender{
		{name: "one write at the hub", object: "spread", change: l.byHub},
		{name: "server-side apply to each cluster", object: "direct", change: l.directly},
	}
	for _, c := range contenders { // agents join first; and nobody makes connections later
		if _, err := l.changes(ctx, c, -1, 1); err != nil {
			return err
		}
	}
	for run := range l.runs {
		for _, c := range contenders {
			times, err := l.changes(ctx, c, run, l.options.changes)
			if err != nil {
				return err
			}
			c.p50 = append(c.p50, measure.Millis(measure.Quantile(times, 0.5)))
			c.p99 = append(c.p99, measure.Millis(measure.Quantile(times, 0.99)))
			c.max = append(c.max, measure.Millis(measure.Quantile(times, 1)))
		}
	}
	table := measure.Table{
		Title: fmt.Sprintf("change of a ConfigMap of 1 KiB → in each of %d clusters (API servers of their own with real agents), %s; %d changes × %d clusters × %d runs, %s between changes",
			l.clusters, beside, l.options.changes, l.clusters, l.runs, l.pace),
		Columns: []string{"p99 ms", "p50 ms", "most ms"}, LessIsBetter: true,
	}
	for _, c := range contenders {
		table.Rows = append(table.Rows, measure.Row{Name: c.name, Columns: []measure.Series{c.p99, c.p50, c.max}})
	}
	return table.Write(l.out)
}

// changes makes n changes, one after the other, and returns how long each took to each
// cluster, its own write included.
func (l *lab) changes(ctx context.Context, c *contender, run, n int) ([]time.Duration, error) {
	a, err := l.follow(ctx, c.object)
	if err != nil {
		return nil, err
	}
	defer a.stop()
	var all []time.Duration
	for i := range n {
		value := fmt.Sprintf("%d-%d-%d", time.Now().UnixNano(), run, i)
		begun := time.Now()
		if err := c.change(ctx, value); err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
		ends, err := a.await(ctx, value)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
		for _, end := range ends {
			all = append(all, end.Sub(begun))
		}
		if err := pause(ctx, l.pace); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// data is what the object has.
func data(value string) map[string]string {
	return map[string]string{"value": value, "filler": strings.Repeat("x", 1024)}
}

// configMap is placed in those clusters.
func configMap(name, value string, clusters []string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name, Annotations: map[string]string{
			v1alpha1.ClustersAnnotation: strings.Join(clusters, ","),
		}},
		Data: data(value),
	}
}

func (l *lab) byHub(ctx context.Context, value string) error {
	o := configMap("spread", value, l.names)
	err := l.bed.Hub.Client.Patch(ctx, o, client.RawPatch("application/merge-patch+json",
		[]byte(`{"data":{"value":`+strconv.Quote(value)+`}}`)))
	if apierrors.IsNotFound(err) {
		err = l.bed.Hub.Client.Create(ctx, configMap("spread", value, l.names))
	}
	return err
}

func (l *lab) directly(ctx context.Context, value string) error {
	var g errgroup.Group
	for _, name := range l.names {
		g.Go(func() error {
			o := applycorev1.ConfigMap("direct", metav1.NamespaceDefault).WithData(data(value))
			return l.bed.Clusters[name].Client.Apply(ctx, o, client.FieldOwner("bench"))
		})
	}
	return g.Wait()
}
