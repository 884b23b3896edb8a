// SPDX-License-Identifier: Apache-2.0

package main

import (
	"time"

	"github.com/patchbay-cni/patchbay/test/bench/measure"
)

// result is one run.
type result struct {
	took           []time.Duration
	all, processor time.Duration
}

func columns() []string {
	return []string{"p99 ms", "p50 ms", "ms of all processors each", "all in s"}
}

func (r result) figures() []float64 {
	return []float64{
		measure.Millis(measure.Quantile(r.took, 0.99)), measure.Millis(measure.Quantile(r.took, 0.5)),
		measure.Millis(r.processor) / float64(max(len(r.took), 1)), r.all.Seconds(),
	}
}

// processorTime is what this process and its children have used: API server, etcd,
// admission and clients. On a machine that others use it says more than a latency.
func processorTime() time.Duration {
	used := measure.ProcessorTimes()
	delete(used, measure.All)
	sum := time.Duration(0)
	for _, program := range used {
		sum += program
	}
	return sum
}
