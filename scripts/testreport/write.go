// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"io"
	"path"
	"slices"
	"text/tabwriter"
	"time"
)

const (
	// slowTestCount is how many tests are listed in any case.
	slowTestCount = 10
	// slowThreshold is the time that a test may take without a reason. It is no limit: a busy
	// machine takes longer for everything.
	slowThreshold = time.Minute
)

// write prints the slow tests, the table, and the sums in the form that gotestsum's readers know.
func write(out io.Writer, targets []*target, reasons map[string]string) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	var all []test
	passed, failed, skipped := 0, 0, 0
	for _, t := range targets {
		passed, failed, skipped = passed+t.count("pass"), failed+t.count("fail"), skipped+t.count("skip")
		all = append(all, t.tests...)
	}
	writeTests(w, all, reasons)
	fmt.Fprintln(w, "\nTARGET\tSTATE\tTESTS\tFAILED\tSKIPPED\tFROM CACHE\tTIME\tPROCESSOR TIME")
	for _, t := range targets {
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d\t%s\t%s\t%s\n",
			t.name, t.state(), len(t.tests), t.count("fail"), t.count("skip"), packages(t.cached), t.duration, t.processor.Round(time.Second))
	}
	fmt.Fprintf(w, "\n%d passed, %d failed, %d skipped\n", passed, failed, skipped)
	if err := w.Flush(); err != nil {
		return fmt.Errorf("print report: %w", err)
	}
	return nil
}

// writeTests prints the slow tests, and those that were skipped.
func writeTests(w io.Writer, all []test, reasons map[string]string) {
	fmt.Fprintln(w, "\nSLOWEST TESTS\tTIME\tWHY MORE THAN "+slowThreshold.String())
	for _, t := range slowTests(all) {
		name, why := t.title(), ""
		if t.duration > slowThreshold {
			why = cmp.Or(reasons[name], "no reason: shorten the test, or add its reason to test/slow-tests.txt")
		}
		fmt.Fprintf(w, "%s\t%.1fs\t%s\n", name, t.duration.Seconds(), why)
	}
	if slices.ContainsFunc(all, test.isSkipped) {
		fmt.Fprintln(w, "\nSKIPPED TESTS")
	}
	for _, t := range all {
		if t.isSkipped() {
			fmt.Fprintln(w, t.title())
		}
	}
}

func packages(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("%d packages", n)
}

// title is the package's last folder, a dot and the test.
func (t test) title() string { return path.Base(t.pkg) + "." + t.name }

// slowTests returns the slowest tests, the slowest first, and all that are over the budget.
func slowTests(all []test) []test {
	top := slices.DeleteFunc(slices.Clone(all), test.isSubtest)
	slices.SortStableFunc(top, func(a, b test) int { return cmp.Compare(b.duration, a.duration) })
	n := 0
	for n < len(top) && (n < slowTestCount || top[n].duration > slowThreshold) {
		n++
	}
	return top[:n]
}
