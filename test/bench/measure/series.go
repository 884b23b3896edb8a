// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"fmt"
	"slices"
	"time"
)

// Series are the figures of one contender, one from each run.
type Series []float64

// Median returns the middle figure, or the mean of the middle two; 0 of none.
func (s Series) Median() float64 {
	if len(s) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(s))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}

// String gives median and spread, such as "14.2 (13.9–15)".
func (s Series) String() string {
	if len(s) == 0 {
		return "–"
	}
	return fmt.Sprintf("%s (%s–%s)", Figure(s.Median()), Figure(slices.Min(s)), Figure(slices.Max(s)))
}

// Figure prints a number with three digits of precision and no exponent.
func Figure(v float64) string {
	switch {
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	default:
		return fmt.Sprintf("%.2f", v)
	}
}

// Quantile returns the duration that a share q (0 to 1) of the samples do not exceed;
// 0 of none.
func Quantile(samples []time.Duration, q float64) time.Duration {
	if len(samples) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(samples))
	at := int(q*float64(len(sorted))+0.5) - 1
	return sorted[min(max(at, 0), len(sorted)-1)]
}

// Millis returns a duration in milliseconds.
func Millis(d time.Duration) float64 { return d.Seconds() * 1000 }
