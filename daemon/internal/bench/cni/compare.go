// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/patchbay-cni/patchbay/cni/wire"
	"github.com/patchbay-cni/patchbay/test/bench/measure"
)

// maxInFlight is the largest number of Pods in flight.
const maxInFlight = 16

// compare prints tables for 1 and for 16 Pods in flight.
func compare(ctx context.Context, o options, out io.Writer) (err error) {
	pods, err := createHost(o.dir, maxInFlight)
	if err != nil {
		return err
	}
	stop, err := startDaemon(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	c, err := startCluster(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.stop(context.WithoutCancel(ctx))) }()
	contenders := []contender{patchbayPlugin(o), patchbayInCluster(o, c.pods), debianPlugins(o)}
	for _, flight := range []int{1, maxInFlight} {
		results, err := runContenders(ctx, o, contenders, pods[:flight])
		if err != nil {
			return err
		}
		for _, patchbay := range []int{0, 1} {
			if err := table(o, flight, contenders, results, patchbay, 2).Write(out); err != nil {
				return err
			}
			fmt.Fprintln(out)
		}
	}
	return c.reportClaimSources(ctx, contenders[1], pods[0], out)
}

// runContenders runs the contenders in turns, so that a slow minute of the machine affects all of them.
func runContenders(ctx context.Context, o options, contenders []contender, pods []string) ([][]outcome, error) {
	results := make([][]outcome, len(contenders))
	for run := range o.runs + 1 {
		for i, c := range contenders {
			r, err := runPods(ctx, c, pods, o.pods, run)
			if err != nil {
				return nil, err
			}
			if run > 0 { // the first run fills caches and warm pools
				results[i] = append(results[i], r)
			}
		}
	}
	return results, nil
}

// table returns a table of some contenders.
func table(o options, flight int, contenders []contender, results [][]outcome, rows ...int) measure.Table {
	t := measure.Table{
		Title: fmt.Sprintf("ADD, then DEL of one MACVLAN interface with one address; %d in flight; %d Pods × %d runs: median (least–most) of the runs",
			flight, o.pods, o.runs),
		Columns:      []string{"ADD+DEL p50 ms", "ADD p50", "ADD p99", "DEL p50", "DEL p99", "Pods/s"},
		LessIsBetter: true,
	}
	for _, i := range rows {
		t.Rows = append(t.Rows, row(contenders[i].name, results[i]))
	}
	return t
}

// row returns the row of a contender, with one figure per column and run.
func row(name string, outcomes []outcome) measure.Row {
	columns := make([]measure.Series, 6)
	for _, o := range outcomes {
		var both, adds, dels []time.Duration
		for _, s := range o.samples {
			both, adds, dels = append(both, s.add+s.del), append(adds, s.add), append(dels, s.del)
		}
		for i, v := range []float64{
			measure.Millis(measure.Quantile(both, 0.5)),
			measure.Millis(measure.Quantile(adds, 0.5)), measure.Millis(measure.Quantile(adds, 0.99)),
			measure.Millis(measure.Quantile(dels, 0.5)), measure.Millis(measure.Quantile(dels, 0.99)),
			float64(len(o.samples)) / o.elapsed.Seconds(),
		} {
			columns[i] = append(columns[i], v)
		}
	}
	return measure.Row{Name: name, Columns: columns}
}

// startDaemon starts the daemon as a process, and waits until it answers.
func startDaemon(ctx context.Context, o options) (stop func() error, err error) {
	ctx, cancel := context.WithCancel(ctx)
	daemon := selfCommand(ctx, "-stage", stageDaemon, "-dir", o.dir)
	if err := daemon.Start(); err != nil {
		cancel()
		return nil, fmt.Errorf("start daemon: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- daemon.Wait() }()
	stop = func() error {
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			return fmt.Errorf("daemon: %w", err)
		}
		return nil
	}
	for {
		_, err := wire.Call(ctx, socketIn(o.dir), &wire.Request{Command: "STATUS"})
		if err == nil {
			return stop, nil
		}
		select {
		case err := <-ended:
			cancel()
			return nil, fmt.Errorf("daemon exited: %w", err)
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), stop())
		default:
		}
	}
}
