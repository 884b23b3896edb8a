// SPDX-License-Identifier: Apache-2.0

// Command promql evaluates alerting rules over series with the engine of Prometheus, for tests of alerts.
//
//	promql <input.json >output.json
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
)

// input are rules, and series for each scenario.
type input struct {
	// Rules is a rule file.
	Rules string `json:"rules"`
	// Interval is the time between two samples and between two evaluations, in seconds.
	Interval int64 `json:"interval"`
	// Start is the time of the first sample, in seconds.
	Start int64 `json:"start"`
	// Scenarios are lists of scrapes.
	Scenarios map[string][]scrape `json:"scenarios"`
}

// scrape are the samples of one scrape.
type scrape []sampleOf

// sampleOf is a sample of a series; its name is the label __name__.
type sampleOf struct {
	Labels map[string]string `json:"labels"`
	Value  float64           `json:"value"`
}

// alert is an alert that fires after the last scrape.
type alert struct {
	Name   string            `json:"name"`
	Labels map[string]string `json:"labels"`
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "promql:", err)
		os.Exit(1)
	}
}

func run() error {
	var in input
	if err := json.NewDecoder(os.Stdin).Decode(&in); err != nil {
		return fmt.Errorf("decode the input: %w", err)
	}
	p := parser.NewParser(parser.Options{})
	groups, errs := rulefmt.Parse([]byte(in.Rules), false, model.UTF8Validation, p, nil)
	if len(errs) > 0 {
		return fmt.Errorf("rules: %w", errors.Join(errs...))
	}
	e := evaluator{
		input:  in,
		engine: promql.NewEngine(promql.EngineOpts{MaxSamples: 1e6, Timeout: time.Minute, EnableAtModifier: true, EnableNegativeOffset: true, Parser: p}),
	}
	firing := map[string][]alert{}
	for name, scrapes := range in.Scenarios {
		s := newSeries(in, scrapes)
		for _, group := range groups.Groups {
			for _, rule := range group.Rules {
				alerts, err := e.firing(rule, s, len(scrapes))
				if err != nil {
					return fmt.Errorf("scenario %s: alert %s: %w", name, rule.Alert, err)
				}
				firing[name] = append(firing[name], alerts...)
			}
		}
	}
	return json.NewEncoder(os.Stdout).Encode(firing)
}

// evaluator evaluates rules at the time of each scrape.
type evaluator struct {
	input
	engine *promql.Engine
}

// firing returns the alerts of a rule that fire at the last scrape: those that the expression has returned at each
// evaluation for the time that the rule waits.
func (e evaluator) firing(rule rulefmt.Rule, s series, scrapes int) ([]alert, error) {
	active := map[string]int64{}
	var alerts []alert
	for i := range scrapes {
		at := e.Start + int64(i)*e.Interval
		q, err := e.engine.NewInstantQuery(context.Background(), s, nil, rule.Expr, time.Unix(at, 0))
		if err != nil {
			return nil, err
		}
		result := q.Exec(context.Background())
		if result.Err != nil {
			return nil, result.Err
		}
		vector, err := result.Vector()
		if err != nil {
			return nil, err
		}
		before := active
		active, alerts = map[string]int64{}, nil
		for _, sample := range vector {
			key := sample.Metric.String()
			since, pending := before[key]
			if !pending {
				since = at
			}
			active[key] = since
			if at-since >= int64(time.Duration(rule.For).Seconds()) {
				alerts = append(alerts, alert{rule.Alert, sample.Metric.Map()})
			}
		}
		q.Close()
	}
	slices.SortFunc(alerts, func(a, b alert) int { return cmp.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	return alerts, nil
}

// series implements storage.Queryable.
type series []storage.Series

// newSeries returns the series of scrapes. One that a scrape lacks ends there, as in Prometheus.
func newSeries(in input, scrapes []scrape) series {
	samples, byKey := map[string][]chunks.Sample{}, map[string]labels.Labels{}
	stale := func(key string, i int) {
		if all := samples[key]; len(all) > 0 && all[len(all)-1].T() < (in.Start+int64(i)*in.Interval)*1000 {
			samples[key] = append(all, sample{(in.Start + int64(i)*in.Interval) * 1000, math.Float64frombits(value.StaleNaN)})
		}
	}
	for i, scraped := range scrapes {
		for _, x := range scraped {
			l := labels.FromMap(x.Labels)
			byKey[l.String()] = l
			samples[l.String()] = append(samples[l.String()], sample{(in.Start + int64(i)*in.Interval) * 1000, x.Value})
		}
		for key := range samples {
			stale(key, i)
		}
	}
	var all series
	for key, l := range byKey {
		all = append(all, storage.NewListSeries(l, samples[key]))
	}
	return all
}

// Querier implements storage.Queryable.
func (s series) Querier(int64, int64) (storage.Querier, error) {
	return &storage.MockQuerier{SelectMockFunction: func(_ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
		found := &seriesSet{at: -1}
		for _, one := range s {
			if !slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !m.Matches(one.Labels().Get(m.Name)) }) {
				found.all = append(found.all, one)
			}
		}
		return found
	}}, nil
}

// seriesSet implements storage.SeriesSet.
type seriesSet struct {
	all []storage.Series
	at  int
}

func (s *seriesSet) Next() bool                        { s.at++; return s.at < len(s.all) }
func (s *seriesSet) At() storage.Series                { return s.all[s.at] }
func (s *seriesSet) Err() error                        { return nil }
func (s *seriesSet) Warnings() annotations.Annotations { return nil }

// sample implements chunks.Sample.
type sample struct {
	t int64
	v float64
}

func (s sample) ST() int64                     { return 0 }
func (s sample) T() int64                      { return s.t }
func (s sample) F() float64                    { return s.v }
func (s sample) H() *histogram.Histogram       { return nil }
func (s sample) FH() *histogram.FloatHistogram { return nil }
func (s sample) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (s sample) Copy() chunks.Sample           { return s }
