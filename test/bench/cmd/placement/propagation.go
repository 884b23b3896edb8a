// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
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

// measurePropagation changes one object that is in all clusters, again and again, at the hub and
// directly, and prints how long each change took to each cluster.
func (l *lab) measurePropagation(ctx context.Context, beside string) error {
	contenders := []*contender{
		{name: "one write at the hub", object: "spread", change: l.changeAtHub},
		{name: "server-side apply to each cluster", object: "direct", change: l.changeInClusters},
	}
	for _, c := range contenders { // agents join first; and nobody makes connections later
		if _, err := l.timeChanges(ctx, c, -1, 1); err != nil {
			return err
		}
	}
	for run := range l.runs {
		for _, c := range contenders {
			times, err := l.timeChanges(ctx, c, run, l.changes)
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
			l.clusters, beside, l.changes, l.clusters, l.runs, l.changeInterval),
		Columns: []string{"p99 ms", "p50 ms", "most ms"}, LessIsBetter: true,
	}
	for _, c := range contenders {
		table.Rows = append(table.Rows, measure.Row{Name: c.name, Columns: []measure.Series{c.p99, c.p50, c.max}})
	}
	return table.Write(l.out)
}

// timeChanges makes n changes, one after the other, and returns how long each took to each
// cluster, its own write included.
func (l *lab) timeChanges(ctx context.Context, c *contender, run, n int) ([]time.Duration, error) {
	a, err := l.watchObject(ctx, c.object)
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
		if err := sleepContext(ctx, l.changeInterval); err != nil {
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

func (l *lab) changeAtHub(ctx context.Context, value string) error {
	o := configMap("spread", value, l.names)
	err := l.bed.Hub.Client.Patch(ctx, o, client.RawPatch("application/merge-patch+json",
		[]byte(`{"data":{"value":`+strconv.Quote(value)+`}}`)))
	if apierrors.IsNotFound(err) {
		err = l.bed.Hub.Client.Create(ctx, configMap("spread", value, l.names))
	}
	return err
}

func (l *lab) changeInClusters(ctx context.Context, value string) error {
	var g errgroup.Group
	for _, name := range l.names {
		g.Go(func() error {
			o := applycorev1.ConfigMap("direct", metav1.NamespaceDefault).WithData(data(value))
			return l.bed.Clusters[name].Client.Apply(ctx, o, client.FieldOwner("bench"))
		})
	}
	return g.Wait()
}

// arrivals are what watches of one object in all clusters see.
type arrivals struct {
	watches []watch.Interface
	seen    chan arrival
}

type arrival struct {
	cluster int
	value   string // empty when the watch has ended
	at      time.Time
}

// errWatchEnded says that an API server has ended a watch in the midst of a run.
var errWatchEnded = errors.New("a cluster's watch has ended: run it again")

// watchObject begins to watch the object.
func (l *lab) watchObject(ctx context.Context, name string) (*arrivals, error) {
	a := &arrivals{seen: make(chan arrival, 64*len(l.names))}
	for i, cluster := range l.names {
		w, err := l.bed.Clusters[cluster].Client.Watch(ctx, &corev1.ConfigMapList{},
			client.InNamespace(metav1.NamespaceDefault), client.MatchingFields{"metadata.name": name})
		if err != nil {
			a.stop()
			return nil, fmt.Errorf("watch cluster %s: %w", cluster, err)
		}
		a.watches = append(a.watches, w)
		go a.forward(i, w)
	}
	return a, nil
}

// forward notes when each event came.
func (a *arrivals) forward(cluster int, w watch.Interface) {
	for e := range w.ResultChan() {
		if o, ok := e.Object.(*corev1.ConfigMap); ok {
			a.seen <- arrival{cluster: cluster, value: o.Data["value"], at: time.Now()}
		}
	}
	a.seen <- arrival{cluster: cluster}
}

func (a *arrivals) stop() {
	for _, w := range a.watches {
		w.Stop()
	}
}

// await returns when each cluster had the value.
func (a *arrivals) await(ctx context.Context, value string) ([]time.Time, error) {
	at := make([]time.Time, len(a.watches))
	for missing := len(at); missing > 0; {
		select {
		case s := <-a.seen:
			if s.value == "" {
				return nil, errWatchEnded
			}
			if s.value == value && at[s.cluster].IsZero() {
				at[s.cluster] = s.at
				missing--
			}
		case <-ctx.Done():
			return nil, fmt.Errorf("await %d clusters: %w", missing, ctx.Err())
		}
	}
	return at, nil
}
