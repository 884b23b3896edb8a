// SPDX-License-Identifier: Apache-2.0

package uml

import (
	"fmt"
	"os"

	"github.com/patchbay-cni/patchbay/test/lab/process"
)

// Boot prepares the guest's folder and starts its kernel. The guest's console is
// appended to ConsoleLog.
func Boot(c Config) (process.ID, error) {
	if err := c.prepare(); err != nil {
		return process.ID{}, fmt.Errorf("prepare guest: %w", err)
	}
	spec := process.Spec{
		Args:  c.args(),
		Dir:   c.Dir,
		Env:   c.Kernel.environment(),
		Log:   ConsoleLog(c.Dir),
		Netns: c.Netns,
		Tied:  c.Tied,
	}
	if c.Output != nil {
		spec.Files = []*os.File{c.Output}
	}
	id, err := process.Start(spec)
	if err != nil {
		return process.ID{}, fmt.Errorf("boot guest: %w", err)
	}
	return id, nil
}

// ConsoleLog returns the path of the console's log of the guest in dir.
func ConsoleLog(dir string) string { return Config{Dir: dir}.path(consoleFile) }
