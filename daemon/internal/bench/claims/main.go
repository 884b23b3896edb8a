// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"github.com/patchbay-cni/patchbay/test/apitest"
	"github.com/patchbay-cni/patchbay/test/bench/measure"
)

func main() {
	// client-go would log each request that the limit cancels.
	klog.SetLogger(logr.Discard())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "claims:", err)
		os.Exit(1)
	}
}

// options has the size of the benchmark.
type options struct {
	clients, addresses, runs int
	// limit bounds one run of one contender. Slow contenders do not finish.
	limit time.Duration
}

// parse parses the flags.
func parse(args []string) (options, error) {
	var o options
	flags := flag.NewFlagSet("claims", flag.ContinueOnError)
	flags.IntVar(&o.clients, "clients", 50, "nodes that claim at the same time")
	flags.IntVar(&o.addresses, "addresses", 20, "addresses that each of them claims")
	flags.IntVar(&o.runs, "runs", 3, "runs of each contender")
	flags.DurationVar(&o.limit, "limit", 15*time.Second, "longest time of one run")
	if err := flags.Parse(args); err != nil {
		return o, fmt.Errorf("parse flags: %w", err)
	}
	return o, nil
}

// run runs the benchmark and prints its table.
func run(ctx context.Context, args []string, out io.Writer) (err error) {
	o, err := parse(args)
	if err != nil {
		return err
	}
	env, err := apitest.Launch(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, env.Close(context.WithoutCancel(ctx))) }()

	table := measure.Table{
		Title: fmt.Sprintf("%d clients × %d addresses of one /16; real etcd and API server on the same machine; "+
			"%d run(s) of at most %s each: median (least–most)", o.clients, o.addresses, o.runs, o.limit),
		Columns: []string{"addresses/s", "addresses", "p50 ms", "p99 ms", "first p50 ms", "writes/address", "conflicts/address"},
	}
	contenders := contenders()
	results := make([][]outcome, len(contenders))
	// Contenders take turns, so that a slow minute of the machine affects all of them.
	for range o.runs {
		for i, c := range contenders {
			r, err := runContender(ctx, env, c, o)
			if err != nil {
				return fmt.Errorf("run %s: %w", c.name, err)
			}
			results[i] = append(results[i], r)
		}
	}
	for i, c := range contenders {
		table.Rows = append(table.Rows, row(c.name, results[i]))
	}
	return table.Write(out)
}

// contenders returns Patchbay's contenders, and then its peers.
func contenders() []contender {
	return []contender{
		{name: "Patchbay, empty warm pools: group commit, jitter", newClient: newGroupCommitClient},
		{name: "Patchbay, warm pools", newClient: newGroupCommitClient, warm: true},
		{name: "one address per PUT, jitter", newClient: newSingleClaimClient(jitteredBackoff)},
		{name: "one address per PUT, retried at once", newClient: newSingleClaimClient(noBackoff)},
	}
}

// noBackoff does not wait after a conflict.
func noBackoff(int) time.Duration { return 0 }

// jitteredBackoff returns a random delay below a bound that doubles from 5 ms to 2 s, as Patchbay does.
func jitteredBackoff(attempt int) time.Duration {
	const first, most = 5 * time.Millisecond, 2 * time.Second
	bound := min(first<<min(attempt, 10), most)
	return rand.N(bound)
}

// row returns the row of a contender.
func row(name string, outcomes []outcome) measure.Row {
	columns := make([]measure.Series, 7)
	for _, o := range outcomes {
		n := float64(len(o.latencies))
		for i, v := range []float64{
			n / o.elapsed.Seconds(),
			n,
			measure.Millis(measure.Quantile(o.latencies, 0.5)),
			measure.Millis(measure.Quantile(o.latencies, 0.99)),
			measure.Millis(measure.Quantile(o.firstLatencies, 0.5)),
			float64(o.writes) / n,
			float64(o.conflicts) / n,
		} {
			columns[i] = append(columns[i], v)
		}
	}
	return measure.Row{Name: name, Columns: columns}
}
