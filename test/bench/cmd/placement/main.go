// SPDX-License-Identifier: Apache-2.0

// Command placement measures placement over many clusters on one machine: how soon a
// change at the hub is in all clusters, beside the same object applied to each of them
// directly; the resident memory of hub and agent; and what is written once all has
// settled.
//
// Each cluster is an API server of its own (all share one etcd) with a real agent;
// nothing runs Pods. All of it and this program share the machine's processors, so the
// times are upper bounds.
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
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log"

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
	clusters, runs, changes, idle, works int
	changeInterval, quietPeriod          time.Duration
}

func parse(args []string) (options, error) {
	var o options
	flags := flag.NewFlagSet("placement", flag.ContinueOnError)
	flags.IntVar(&o.clusters, "clusters", 20, "workload clusters, at least 2")
	flags.IntVar(&o.runs, "runs", 5, "runs of changes")
	flags.IntVar(&o.changes, "changes", 20, "changes of a run, each to one object that is in all clusters")
	flags.DurationVar(&o.changeInterval, "pace", time.Second, "pause between changes; 0: the next as soon as the last is everywhere")
	flags.IntVar(&o.idle, "idle-works", 100, "Works of the agent whose memory is read")
	flags.IntVar(&o.works, "works", 5000, "Works of the hub whose memory is read")
	flags.DurationVar(&o.quietPeriod, "quiet", time.Minute, "how long nothing is to be written")
	if err := flags.Parse(args); err != nil {
		return o, fmt.Errorf("parse flags: %w", err)
	}
	if o.clusters < 2 || o.runs < 1 || o.changes < 1 || o.idle < 1 || o.works <= o.idle {
		return o, errors.New("parse flags: want two clusters, one run, one change and one idle Work at least, and more Works than idle ones")
	}
	return o, nil
}

func run(ctx context.Context, args []string, out io.Writer) (err error) {
	o, err := parse(args)
	if err != nil {
		return err
	}
	l := &lab{options: o, out: out}
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
	return l.measure(ctx)
}
