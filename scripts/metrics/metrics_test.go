// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
)

// Names and help follow the conventions of Prometheus: base units, _total for counters only.
func TestNamesFollowConventions(t *testing.T) {
	t.Parallel()
	all, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		if len(p.metrics) == 0 {
			t.Errorf("%s registers no metrics", p.name)
		}
		for _, m := range p.metrics {
			problems, err := promlint.New(strings.NewReader(exposition(m))).Lint()
			if err != nil {
				t.Errorf("%s of %s: %v", m.name, p.name, err)
			}
			for _, problem := range problems {
				t.Errorf("%s of %s: %s", m.name, p.name, problem.Text)
			}
			if strings.Contains(m.name, "duration") && !strings.HasSuffix(m.name, "_duration_seconds") {
				t.Errorf("%s of %s: a duration must end with _duration_seconds", m.name, p.name)
			}
		}
	}
}

// exposition returns a metric with one value as in a scrape.
func exposition(m metric) string {
	text := fmt.Sprintf("# HELP %s %s\n# TYPE %s %s\n", m.name, m.help, m.name, m.kind)
	if m.kind == "histogram" {
		return text + fmt.Sprintf("%s_bucket{le=\"+Inf\"} 1\n%s_sum 1\n%s_count 1\n", m.name, m.name, m.name)
	}
	return text + m.name + " 1\n"
}

// The recorder finds name, type, help and labels of each way to register a metric, and leaves those of
// libraries out.
func TestRecorder(t *testing.T) {
	t.Parallel()
	gauge := prometheus.GaugeOpts{Name: "patchbay_x", Help: `of "a", {b}`}
	for _, tc := range []struct {
		reason    string
		collector prometheus.Collector
		want      []metric
	}{
		{"a gauge with labels has no value yet", prometheus.NewGaugeVec(gauge, []string{"b", "a"}), []metric{{"patchbay_x", "gauge", gauge.Help, []string{"b", "a"}}}},
		{"a gauge that is read at each scrape", prometheus.NewGaugeFunc(gauge, func() float64 { return 1 }), []metric{{"patchbay_x", "gauge", gauge.Help, nil}}},
		{
			"a counter with a constant label", prometheus.NewCounterFunc(prometheus.CounterOpts{
				Name: "patchbay_x_total", Help: "h", ConstLabels: prometheus.Labels{"source": `a,"}`},
			}, func() float64 { return 1 }), []metric{{"patchbay_x_total", "counter", "h", []string{"source"}}},
		},
		{"a counter with labels", prometheus.NewCounterVec(prometheus.CounterOpts{Name: "patchbay_x_total", Help: "h"}, []string{"a"}), []metric{{"patchbay_x_total", "counter", "h", []string{"a"}}}},
		{"a histogram with labels", prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "patchbay_x_seconds", Help: "h"}, []string{"a"}), []metric{{"patchbay_x_seconds", "histogram", "h", []string{"a"}}}},
		{"a histogram", prometheus.NewHistogram(prometheus.HistogramOpts{Name: "patchbay_x_seconds", Help: "h"}), []metric{{"patchbay_x_seconds", "histogram", "h", nil}}},
		{"a metric of a library", prometheus.NewGauge(prometheus.GaugeOpts{Name: "go_x", Help: "h"}), nil},
	} {
		r := &recorder{}
		r.MustRegister(tc.collector, tc.collector)
		if r.err != nil || !slices.EqualFunc(r.metrics, tc.want, equal) {
			t.Errorf("%s: got %v and error %v, want %v once", tc.reason, r.metrics, r.err, tc.want)
		}
	}
}

func equal(a, b metric) bool { return fmt.Sprint(a) == fmt.Sprint(b) }

// silentCollector describes a metric, and has no value and no type.
type silentCollector struct{ prometheus.Collector }

// Collect implements prometheus.Collector.
func (silentCollector) Collect(chan<- prometheus.Metric) {}

// A page without the type of a metric would be wrong.
func TestRecorderRejectsUnknownTypes(t *testing.T) {
	t.Parallel()
	r := &recorder{}
	r.MustRegister(silentCollector{prometheus.NewGauge(prometheus.GaugeOpts{Name: "patchbay_x", Help: "h"})})
	if r.err == nil || !strings.Contains(r.err.Error(), "type of patchbay_x: must be known") {
		t.Errorf("got error %v, want one that names the metric", r.err)
	}
	if _, err := parseDescription("Desc{}"); err == nil || errors.Is(err, r.err) {
		t.Errorf("got error %v for another form of descriptions, want one", err)
	}
}

// A bar in a help text must not end its cell.
func TestRender(t *testing.T) {
	t.Parallel()
	page := string(render([]program{{name: "p", note: "n", metrics: []metric{{"patchbay_x", "gauge", "a | b", []string{"x", "y"}}, {"patchbay_y", "counter", "c", nil}}}}))
	want := "\n## p\n\nn\n\n| name | type | labels | help |\n|---|---|---|---|\n" +
		"| `patchbay_x` | gauge | `x`, `y` | a \\| b |\n| `patchbay_y` | counter |  | c |\n"
	if !strings.HasSuffix(page, want) {
		t.Errorf("got\n%s\nwant it to end with\n%s", page, want)
	}
}
