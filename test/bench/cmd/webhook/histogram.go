// SPDX-License-Identifier: Apache-2.0

package main

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// histogram is one of Prometheus, in seconds, of all series with a label together.
type histogram struct {
	count, sum float64
	// buckets has the number of values up to each bound.
	buckets map[float64]float64
}

// parseHistogram parses a metric of a scrape.
func parseHistogram(scrape, name, label string) histogram {
	h := histogram{count: parseSum(scrape, name+"_count", label), sum: parseSum(scrape, name+"_sum", label), buckets: map[float64]float64{}}
	for line := range strings.Lines(scrape) {
		labels, value, ok := parseLine(line, name+"_bucket", label)
		if !ok {
			continue
		}
		_, rest, _ := strings.Cut(labels, `le="`)
		bound, _, _ := strings.Cut(rest, `"`)
		if le, err := strconv.ParseFloat(bound, 64); err == nil {
			h.buckets[le] += value
		}
	}
	return h
}

// parseSum returns the sum of the series with a label.
func parseSum(scrape, name, label string) float64 {
	sum := 0.0
	for line := range strings.Lines(scrape) {
		if _, value, ok := parseLine(line, name, label); ok {
			sum += value
		}
	}
	return sum
}

// parseLine parses a line of a scrape, and reports whether it has that name and label.
func parseLine(line, name, label string) (labels string, value float64, ok bool) {
	rest, ok := strings.CutPrefix(line, name+"{")
	if !ok {
		return "", 0, false
	}
	end := strings.LastIndexByte(rest, '}')
	if end < 0 || !strings.Contains(rest[:end], label) {
		return "", 0, false
	}
	value, err := strconv.ParseFloat(strings.TrimSpace(rest[end+1:]), 64)
	return rest[:end], value, err == nil
}

// minus returns what was added since an earlier scrape.
func (h histogram) minus(before histogram) histogram {
	d := histogram{count: h.count - before.count, sum: h.sum - before.sum, buckets: map[float64]float64{}}
	for bound, value := range h.buckets {
		d.buckets[bound] = value - before.buckets[bound]
	}
	return d
}

// meanMillis returns the mean in milliseconds; NaN of none.
func (h histogram) meanMillis() float64 { return 1000 * h.sum / h.count }

// boundMillis returns the least bound, in milliseconds, that a share q of the values does not exceed;
// NaN of none.
func (h histogram) boundMillis(q float64) float64 {
	for _, bound := range slices.Sorted(maps.Keys(h.buckets)) {
		if h.count > 0 && h.buckets[bound] >= q*h.count {
			return 1000 * bound
		}
	}
	return math.NaN()
}
