// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"cmp"
	"fmt"
	"os"
	"strings"
	"time"
)

// writeHolder leaves a line on who has the lock. The kernel knows a pid, which
// says nothing in another container's pid namespace.
func writeHolder(path, name string) error {
	line := fmt.Sprintf("%s (pid %d) since %s\n",
		cmp.Or(name, "another daemon"), os.Getpid(), time.Now().UTC().Format(time.RFC3339))
	return os.WriteFile(path, []byte(line), 0o600)
}

// readHolder is the line of the holder, or that there is none.
func readHolder(path string) string {
	line, err := os.ReadFile(path)
	if err != nil {
		return "a process that does not say who it is"
	}
	return strings.TrimSpace(string(line))
}
