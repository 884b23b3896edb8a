// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/patchbay-cni/patchbay/test/bench/measure"
)

// report prints the tables.
func report(out io.Writer, o options, samples [][]sample) error {
	title := fmt.Sprintf("%d Pod creations per second for %v, intended start times; %d networks, %d namespaces; real etcd, API server and controller on the same machine; × %d runs: median (least–most)",
		o.rate, o.duration, o.networks, o.namespaces, o.runs)
	for _, t := range []measure.Table{
		newTable(title, samples, creationColumns(), false),
		newTable(fmt.Sprintf("the webhook: %d calls per second by a client of its own, beside the API server's calls", o.probes), samples, webhookColumns(), true),
		newTable("processors in use: each program's share of one processor", samples, processorColumns(), true),
	} {
		if err := t.Write(out); err != nil {
			return err
		}
		if _, err := fmt.Fprintln(out); err != nil {
			return err
		}
	}
	_, err := fmt.Fprint(out, ratios(samples))
	return err
}

// column is a figure of a sample.
type column struct {
	heading string
	figure  func(sample) float64
}

// newTable returns a table with a row for each load. A figure that a load does not have is left out.
func newTable(title string, samples [][]sample, columns []column, alone bool) measure.Table {
	t := measure.Table{Title: title, LessIsBetter: true, Alone: alone}
	for _, c := range columns {
		t.Columns = append(t.Columns, c.heading)
	}
	for i, l := range loads() {
		row := measure.Row{Name: l.name}
		for _, c := range columns {
			row.Columns = append(row.Columns, series(samples[i], c.figure))
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// series returns a figure of each run.
func series(runs []sample, figure func(sample) float64) measure.Series {
	var all measure.Series
	for _, s := range runs {
		if v := figure(s); !math.IsNaN(v) {
			all = append(all, v)
		}
	}
	return all
}

// creationColumns are about the creations, as their clients see them.
func creationColumns() []column {
	return []column{
		{"p99 ms", createdMillis(0.99)},
		{"p50 ms", createdMillis(0.5)},
		{"most ms", createdMillis(1)},
		{"creations/s", func(s sample) float64 { return s.created.Reached() }},
		{"calls", func(s sample) float64 { return s.server.count }},
		{"missed", func(s sample) float64 { return s.missed }},
		{"failed", func(s sample) float64 { return s.failed }},
	}
}

// webhookColumns are about the calls of the webhook.
func webhookColumns() []column {
	probed := func(q float64) func(sample) float64 {
		return func(s sample) float64 { return measure.Millis(measure.Quantile(s.probed.Took, q)) }
	}
	return []column{
		{"p99 ms", probed(0.99)},
		{"p50 ms", probed(0.5)},
		{"most ms", probed(1)},
		{"API server: mean ms", func(s sample) float64 { return s.server.meanMillis() }},
		{"p99 at most ms", func(s sample) float64 { return s.server.boundMillis(0.99) }},
		{"handler: mean ms", func(s sample) float64 { return s.handler.meanMillis() }},
		{"p99 at most ms", func(s sample) float64 { return s.handler.boundMillis(0.99) }},
	}
}

// processorColumns are about the programs.
func processorColumns() []column {
	programs := []struct{ heading, name string }{
		{"API server", "kube-apiserver"}, {"etcd", "etcd"}, {"controller", "patchbay-contro"}, {"this program", measure.Self},
	}
	share := func(s sample, name string) float64 {
		return s.used[name].Seconds() / max(s.created.Elapsed, s.probed.Elapsed).Seconds()
	}
	var all []column
	for _, p := range programs {
		all = append(all, column{p.heading, func(s sample) float64 { return share(s, p.name) }})
	}
	return append(all, column{"all others", func(s sample) float64 {
		rest := share(s, measure.All)
		for _, p := range programs {
			rest -= share(s, p.name)
		}
		return max(rest, 0)
	}})
}

// ratios compares the first load with each control of the same run.
func ratios(samples [][]sample) string {
	var text strings.Builder
	for i, l := range loads()[1:] {
		if l.callsOnly {
			continue
		}
		for _, q := range []float64{0.99, 0.5} {
			ours, control := series(samples[0], createdMillis(q)), series(samples[i+1], createdMillis(q))
			var ratio measure.Series
			for run := range min(len(ours), len(control)) {
				ratio = append(ratio, ours[run]/control[run])
			}
			fmt.Fprintf(&text, "p%.0f of a creation ÷ that of %q in the same run: %s\n", 100*q, l.name, ratio)
		}
	}
	var others []string
	for _, s := range slices.Concat(samples...) {
		others = append(others, s.load)
	}
	fmt.Fprintf(&text, "load averages before the runs: %s\n", strings.Join(others, " "))
	return text.String()
}

// createdMillis returns the figure of a quantile of the creations; NaN of none.
func createdMillis(q float64) func(sample) float64 {
	return func(s sample) float64 {
		if len(s.created.Took) == 0 {
			return math.NaN()
		}
		return measure.Millis(measure.Quantile(s.created.Took, q))
	}
}
