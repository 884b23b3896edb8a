// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"fmt"
	"os"
	"runtime"
	"strings"
)

// Machine names what the figures were taken on: processor, memory, kernel and Go.
func Machine() string {
	cpu := field("/proc/cpuinfo", "model name")
	memory := field("/proc/meminfo", "MemTotal")
	kernel, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		kernel = []byte("unknown")
	}
	return fmt.Sprintf("%d × %s, %s of memory, Linux %s, %s/%s",
		runtime.NumCPU(), cpu, memory, strings.TrimSpace(string(kernel)), runtime.Version(), runtime.GOARCH)
}

// field returns the first value of a "key : value" file.
func field(path, key string) string {
	raw, err := os.ReadFile(path)
	if err != nil {
		return "unknown"
	}
	for line := range strings.Lines(string(raw)) {
		name, value, found := strings.Cut(line, ":")
		if found && strings.TrimSpace(name) == key {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}
