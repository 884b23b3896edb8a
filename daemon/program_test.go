// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package daemon

import (
	"os/exec"
	"syscall"
)

// program runs the daemon as a process.
type program struct {
	n    *node
	path string
	cmd  *exec.Cmd
}

// program builds the daemon. The end of the test kills it.
func (n *node) program() *program {
	n.t.Helper()
	p := &program{n: n, path: n.path("patchbayd")}
	if out, err := exec.Command("go", "build", "-o", p.path, "../cmd/patchbayd").CombinedOutput(); err != nil {
		n.t.Fatalf("go build: %v\n%s", err, out)
	}
	n.t.Cleanup(p.kill)
	return p
}

// start starts the daemon. No earlier one may run.
func (p *program) start() {
	p.cmd = exec.Command(p.path, p.n.args...)
	p.cmd.Stderr = p.n.t.Output()
	if err := p.cmd.Start(); err != nil {
		p.n.t.Error(err)
		p.cmd = nil
	}
}

// kill kills the daemon with SIGKILL.
func (p *program) kill() {
	if p.cmd != nil {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
		p.cmd = nil
	}
}

// stop stops the daemon with SIGTERM, as kubelet does.
func (p *program) stop() {
	if p.cmd == nil {
		return
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	if err := p.cmd.Wait(); err != nil {
		p.n.t.Errorf("the daemon exited with %v", err)
	}
	p.cmd = nil
}

// pid returns the process ID.
func (p *program) pid() int { return p.cmd.Process.Pid }
