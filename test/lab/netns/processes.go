// SPDX-License-Identifier: Apache-2.0

package netns

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"

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
	var ids []process.ID
	for word := range strings.FieldsSeq(string(out)) {
		pid, err := strconv.Atoi(word)
		if err != nil {
			return nil, fmt.Errorf("list processes in %s: %w", name, err)
		}
		id, err := process.Of(pid)
		if errors.Is(err, process.ErrGone) {
			continue
		}
		if err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// KillProcesses kills all that is in a namespace and returns when nothing is left.
func KillProcesses(ctx context.Context, name string) error {
	const pause = 10 * time.Millisecond
	for {
		ids, err := Processes(name)
		if err != nil || len(ids) == 0 {
			return err
		}
		for _, id := range ids {
			if err := id.Kill(ctx); err != nil {
				return fmt.Errorf("empty network namespace %s: %w", name, err)
			}
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return fmt.Errorf("empty network namespace %s: %w", name, ctx.Err())
		}
	}
}
