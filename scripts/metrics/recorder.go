// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// metric is one metric of a program.
type metric struct {
	name, kind, help string
	labels           []string
}

// recorder is a Registerer that records the metrics of Patchbay. Those of libraries are described in
// their own documentation.
type recorder struct {
	metrics []metric
	err     error
}

// prefix is that of Patchbay's metrics.
const prefix = "patchbay_"

// Register implements prometheus.Registerer.
func (r *recorder) Register(c prometheus.Collector) error {
	descriptions := make(chan *prometheus.Desc)
	go func() {
		defer close(descriptions)
		c.Describe(descriptions)
	}()
	var found []metric
	var errs []error
	for d := range descriptions {
		m, err := parseDescription(d.String())
		switch {
		case err != nil:
			errs = append(errs, err)
		case strings.HasPrefix(m.name, prefix):
			found = append(found, m)
		}
	}
	for _, m := range found {
		var err error
		if m.kind, err = kindOf(c, m.name); err != nil {
			errs = append(errs, err)
		}
		r.add(m)
	}
	return errors.Join(errs...)
}

// add records a metric. Collectors with different values of a constant label are one metric.
func (r *recorder) add(m metric) {
	for _, known := range r.metrics {
		if known.name == m.name {
			return
		}
	}
	r.metrics = append(r.metrics, m)
}

// MustRegister implements prometheus.Registerer. It keeps the first error.
func (r *recorder) MustRegister(all ...prometheus.Collector) {
	for _, c := range all {
		if err := r.Register(c); err != nil {
			r.err = errors.Join(r.err, err)
		}
	}
}

// Unregister implements prometheus.Registerer.
func (r *recorder) Unregister(prometheus.Collector) bool { return false }

// description matches the text of a prometheus.Desc, which has no other access to its parts.
var description = regexp.MustCompile(`^Desc\{fqName: ("(?:[^"\\]|\\.)*"), help: ("(?:[^"\\]|\\.)*"), unit: "[^"]*", constLabels: \{(.*)\}, variableLabels: \{(.*)\}\}$`)

// constLabel matches a constant label in it.
var constLabel = regexp.MustCompile(`(\w+)="(?:[^"\\]|\\.)*"`)

// parseDescription returns name, help and labels of a metric.
func parseDescription(text string) (metric, error) {
	parts := description.FindStringSubmatch(text)
	if parts == nil {
		return metric{}, fmt.Errorf("description of a metric: must have the form of the Prometheus client library: got %s", text)
	}
	var m metric
	var err error
	if m.name, err = strconv.Unquote(parts[1]); err != nil {
		return metric{}, fmt.Errorf("name of a metric: %w", err)
	}
	if m.help, err = strconv.Unquote(parts[2]); err != nil {
		return metric{}, fmt.Errorf("help of %s: %w", m.name, err)
	}
	for _, match := range constLabel.FindAllStringSubmatch(parts[3], -1) {
		m.labels = append(m.labels, match[1])
	}
	if parts[4] != "" {
		m.labels = append(m.labels, strings.Split(parts[4], ",")...)
	}
	return m, nil
}

// kindOf returns the type of a collector's metric: from its methods if it has labels, because it has no
// value then, and else from its value.
func kindOf(c prometheus.Collector, name string) (string, error) {
	switch c.(type) {
	case interface {
		WithLabelValues(...string) prometheus.Gauge
	}:
		return "gauge", nil
	case interface {
		WithLabelValues(...string) prometheus.Counter
	}:
		return "counter", nil
	case interface {
		WithLabelValues(...string) prometheus.Observer
	}:
		return "histogram", nil
	}
	r := prometheus.NewRegistry()
	if err := r.Register(c); err != nil {
		return "", fmt.Errorf("read the type of %s: %w", name, err)
	}
	families, err := r.Gather()
	if err != nil {
		return "", fmt.Errorf("read the type of %s: %w", name, err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return strings.ToLower(f.GetType().String()), nil
		}
	}
	return "", fmt.Errorf("type of %s: must be known before it has a value: embed a GaugeVec, CounterVec or HistogramVec in the collector", name)
}
