// SPDX-License-Identifier: Apache-2.0

// Command latency measures the latency of a claim that needs a write to a real API server. It uses
// networks with a /16 of which 0 %, 50 % and 99 % are in use, and the latency should be the same.
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

	"github.com/patchbay-cni/patchbay/test/apitest"
	"github.com/patchbay-cni/patchbay/test/bench/measure"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "latency:", err)
		os.Exit(1)
	}
}

// options has the size of the benchmark.
type options struct{ runs, claims int }

// parse parses the flags.
func parse(args []string) (options, error) {
	var o options
	flags := flag.NewFlagSet("latency", flag.ContinueOnError)
	flags.IntVar(&o.runs, "runs", 5, "runs on each network")
	flags.IntVar(&o.claims, "claims", 100, "claims in a run, one after the other")
	if err := flags.Parse(args); err != nil {
		return o, fmt.Errorf("parse flags: %w", err)
	}
	return o, nil
}

// fillLevels returns the percentages of addresses in use.
func fillLevels() []int { return []int{0, 50, 99} }

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
	clients := make([]*client, len(fillLevels()))
	for i, percent := range fillLevels() {
		if clients[i], err = newClient(ctx, env, percent); err != nil {
			return err
		}
		defer clients[i].close()
	}
	results := make([][][]time.Duration, len(clients))
	for turn := range o.runs + 1 {
		for i, c := range clients {
			took, err := c.timeClaims(ctx, o.claims)
			if err != nil {
				return err
			}
			if turn > 0 { // the first turn fills caches
				results[i] = append(results[i], took)
			}
		}
	}
	return table(o, results).Write(out)
}

// table returns a row for each level, with the ratio to the empty network of the same run.
func table(o options, results [][][]time.Duration) measure.Table {
	t := measure.Table{
		Title:   fmt.Sprintf("one client, one claim after the other, no warm pool; %d claims × %d runs: median (least–most)", o.claims, o.runs),
		Columns: []string{"p50 ms", "p99 ms", "p50 ÷ empty"}, Alone: true,
	}
	for i, percent := range fillLevels() {
		row := measure.Row{Name: fmt.Sprintf("/16, %d %% in use", percent), Columns: make([]measure.Series, 3)}
		for turn, took := range results[i] {
			p50, empty := measure.Quantile(took, 0.5), measure.Quantile(results[0][turn], 0.5)
			for column, v := range []float64{
				measure.Millis(p50), measure.Millis(measure.Quantile(took, 0.99)), float64(p50) / float64(max(empty, 1)),
			} {
				row.Columns[column] = append(row.Columns[column], v)
			}
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}
