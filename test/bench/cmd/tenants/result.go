// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
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
	files, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is right
	self, ticks := strconv.Itoa(os.Getpid()), 0
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			continue // it has ended
		}
		if filepath.Base(filepath.Dir(f)) == self || parentOf(data) == self {
			ticks += ticksOf(data)
		}
	}
	const userHZ = 100
	return time.Duration(ticks) * time.Second / userHZ
}

// stat splits a line of /proc/<pid>/stat after the name, which may have spaces: state,
// ppid, and utime and stime at 11 and 12.
func stat(data []byte) [][]byte { return bytes.Fields(data[bytes.LastIndexByte(data, ')')+1:]) }

func parentOf(data []byte) string {
	if fields := stat(data); len(fields) > 1 {
		return string(fields[1])
	}
	return ""
}

func ticksOf(data []byte) int {
	sum := 0
	if fields := stat(data); len(fields) > 12 {
		for _, field := range fields[11:13] {
			n, _ := strconv.Atoi(string(field)) // the kernel writes numbers
			sum += n
		}
	}
	return sum
}
