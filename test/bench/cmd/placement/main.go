// SPDX-License-Identifier: Apache-2.0

// Command placement measures placement over many clusters on one machine: how soon a
// change at the hub is in all clusters, and the resident memory of hub and agent.
//
// Each cluster is an API server of its own with a real agent; nothing runs Pods. All
// share this machine's processors, so the times are upper bounds.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/test/bench/measure"
	"github.com/patchbay-cni/patchbay/test/lab/process"
	"github.com/patchbay-cni/patchbay/test/placement/bed"
)

func main() {
	klog.SetLogger(logr.Discard())
	log.SetLogger(logr.Discard())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "placement:", err)
		os.Exit(1)
	}
}

// options are the size of the benchmark.
type options struct {
	clusters, changes, idle, works int
}

func run(ctx context.Context, args []string, out io.Writer) (err error) {
	var o options
	flags := flag.NewFlagSet("placement", flag.ContinueOnError)
	flags.IntVar(&o.clusters, "clusters", 20, "workload clusters")
	flags.IntVar(&o.changes, "changes", 50, "changes, each to one object that is in all clusters")
	flags.IntVar(&o.idle, "idle-works", 100, "Works of the agent whose memory is read")
	flags.IntVar(&o.works, "works", 5000, "Works of the hub whose memory is read")
	if err := flags.Parse(args); err != nil {
		return fmt.Errorf("parse flags: %w", err)
	}
	l := &lab{options: o, agents: make([]process.ID, o.clusters)}
	for i := range o.clusters {
		l.names = append(l.names, fmt.Sprintf("c%02d", i+1))
	}
	if l.bed, err = bed.Launch(ctx, bed.Config{Clusters: l.names, APIServersOnly: true}); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.bed.Close(context.WithoutCancel(ctx))) }()
	if err := l.start(ctx); err != nil {
		return err
	}
	return l.measure(ctx, out)
}

// lab is a bed with hub and agents.
type lab struct {
	options

	bed    *bed.Bed
	names  []string
	hub    process.ID
	agents []process.ID
}

func (l *lab) start(ctx context.Context) error {
	var err error
	if l.hub, err = l.bed.StartHub(ctx); err != nil {
		return err
	}
	var g errgroup.Group
	for i, name := range l.names {
		g.Go(func() error {
			if err := l.bed.Accept(ctx, name, v1alpha1.ClusterSpec{}); err != nil {
				return err
			}
			var err error
			l.agents[i], err = l.bed.StartAgent(ctx, name)
			return err
		})
	}
	return g.Wait()
}

// measure runs all parts and prints the figures.
func (l *lab) measure(ctx context.Context, out io.Writer) error {
	times, err := l.spread(ctx)
	if err != nil {
		return err
	}
	table := measure.Table{
		Title: fmt.Sprintf("%d changes of a ConfigMap that is in %d clusters; real API servers and agents on the same machine",
			l.changes, l.clusters),
		Columns: []string{"p50 ms", "p99 ms"}, Alone: true,
		Rows: []measure.Row{{Name: "change at the hub → object in a cluster", Columns: []measure.Series{
			{measure.Millis(measure.Quantile(times, 0.5))}, {measure.Millis(measure.Quantile(times, 0.99))},
		}}},
	}
	if err := table.Write(out); err != nil {
		return err
	}
	memory := measure.Table{Title: "resident memory at rest", Columns: []string{"MiB"}, Alone: true}
	for _, m := range []struct {
		name    string
		works   int
		process process.ID
		only    string
	}{
		{fmt.Sprintf("agent with %d Works", l.idle), l.idle, l.agents[0], l.names[0]},
		{fmt.Sprintf("hub with %d Works", l.works), l.works - l.idle, l.hub, ""},
	} {
		if err := l.fill(ctx, m.name[:3], m.works, m.only); err != nil {
			return err
		}
		size, err := resident(ctx, m.process)
		if err != nil {
			return err
		}
		memory.Rows = append(memory.Rows, measure.Row{Name: m.name, Columns: []measure.Series{{size}}})
	}
	return memory.Write(out)
}

// rest is how long a process is left alone before its memory is read.
const rest = 20 * time.Second
