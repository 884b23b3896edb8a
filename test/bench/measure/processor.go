// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// Self is the name of this process in ProcessorTimes, All that of the whole machine.
const (
	Self = "self"
	All  = "all"
)

// ProcessorTimes returns how much processor time this process and its children have used, by the name
// of the program, which Linux cuts to 15 bytes, and how much the whole machine has used.
func ProcessorTimes() map[string]time.Duration {
	self, used := strconv.Itoa(os.Getpid()), map[string]time.Duration{All: allProcessors()}
	files, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is right
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			continue // it has ended
		}
		p := parseStat(data)
		switch {
		case filepath.Base(filepath.Dir(f)) == self:
			used[Self] += p.used
		case p.parent == self:
			used[p.name] += p.used
		}
	}
	return used
}

// userHZ is the number of clock ticks in a second, in files of /proc.
const userHZ = 100

// processStat is what /proc/<pid>/stat says of a process.
type processStat struct {
	name, parent string
	used         time.Duration
}

// parseStat parses /proc/<pid>/stat: the process ID, the name in parentheses, which may have spaces
// itself, and then state, parent, and utime and stime at 11 and 12.
func parseStat(data []byte) processStat {
	open, end := bytes.IndexByte(data, '('), bytes.LastIndexByte(data, ')')
	if open < 0 || end < open {
		return processStat{}
	}
	fields := bytes.Fields(data[end+1:])
	if len(fields) <= 12 {
		return processStat{}
	}
	return processStat{name: string(data[open+1 : end]), parent: string(fields[1]), used: ticks(fields[11:13])}
}

// allProcessors returns the time that the processors of the machine were not idle.
func allProcessors() time.Duration {
	data, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	return parseAll(data)
}

// parseAll parses the first line of /proc/stat: the name, then user, nice, system, idle, iowait, irq,
// softirq and steal. Only idle and iowait are idle.
func parseAll(data []byte) time.Duration {
	line, _, _ := bytes.Cut(data, []byte("\n"))
	fields := bytes.Fields(line)
	if len(fields) <= 8 {
		return 0
	}
	return ticks(fields[1:4]) + ticks(fields[6:9])
}

// ticks returns the sum of numbers of clock ticks.
func ticks(fields [][]byte) time.Duration {
	sum := 0
	for _, field := range fields {
		n, _ := strconv.Atoi(string(field)) // the kernel writes numbers
		sum += n
	}
	return time.Duration(sum) * time.Second / userHZ
}
