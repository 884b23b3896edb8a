// SPDX-License-Identifier: Apache-2.0

package netns

import (
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"strings"

	"github.com/patchbay-cni/patchbay/test/lab/process"
)

// Processes lists who is in a namespace. A name that nobody has is in use by nobody.
func Processes(name string) ([]process.ID, error) {
	if !Exists(name) {
		return nil, nil
	}
	out, err := exec.Command("ip", "netns", "pids", name).Output()
	if err != nil {
		return nil, wrap(err, "list processes in "+name)
	}
	var pids []int
	for word := range strings.FieldsSeq(string(out)) {
		pid, err := strconv.Atoi(word)
		if err != nil {
			return nil, fmt.Errorf("list processes in %s: %w", name, err)
		}
		pids = append(pids, pid)
	}
	return process.All(pids)
}

// KillProcesses kills all that is in a namespace and returns when nothing is left.
func KillProcesses(ctx context.Context, name string) error {
	list := func() ([]process.ID, error) { return Processes(name) }
	if err := process.KillAll(ctx, list); err != nil {
		return fmt.Errorf("empty network namespace %s: %w", name, err)
	}
	return nil
}
