// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"golang.org/x/sys/unix"
)

// output is a pipe that a command writes to, and where that goes.
type output struct {
	read, write *os.File
	to          io.Writer
	ended       chan struct{}
}

// outputs are both of a command.
type outputs []*output

// attach gives a command that has not started its two outputs.
func attach(cmd *exec.Cmd, out, errOut io.Writer) (outputs, error) {
	var both outputs
	for _, to := range []io.Writer{out, errOut} {
		read, write, err := os.Pipe()
		if err != nil {
			both.close()
			return nil, fmt.Errorf("make pipe: %w", err)
		}
		both = append(both, &output{read: read, write: write, to: to, ended: make(chan struct{})})
	}
	cmd.Stdout, cmd.Stderr = both[0].write, both[1].write
	return both, nil
}

// forward passes on what comes, from now on; the command has the writing ends.
func (all outputs) forward() {
	for _, o := range all {
		_ = o.write.Close()
		go func() {
			defer close(o.ended)
			_, _ = io.Copy(o.to, o.read) // who is told of an error is gone
		}()
	}
}

// drain returns when all was passed on that the command has written until it ended,
// however long that takes on a busy machine. What it left in the background may have
// the pipe for ever, and nobody waits for that.
func (all outputs) drain() {
	for _, o := range all {
		o.drain()
	}
}

func (o *output) drain() {
	const pause = time.Millisecond
	for o.pending() {
		select {
		case <-o.ended:
			return
		case <-time.After(pause):
		}
	}
	// What was read is passed on before the next read, which fails.
	_ = o.read.SetReadDeadline(time.Now())
	<-o.ended
}

// pending tells whether something was written and not read.
func (o *output) pending() bool {
	conn, err := o.read.SyscallConn()
	if err != nil {
		return false
	}
	n := 0
	failed := conn.Control(func(fd uintptr) { n, err = unix.IoctlGetInt(int(fd), unix.TIOCINQ) })
	return errors.Join(failed, err) == nil && n > 0
}

func (all outputs) close() {
	for _, o := range all {
		_ = o.read.Close()
		_ = o.write.Close()
	}
}
