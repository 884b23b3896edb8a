// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package daemon

import (
	"os/exec"
	"syscall"
)

// program is the daemon as a process of its own, which can be killed.
type program struct {
	n    *node
	path string
	cmd  *exec.Cmd
}

// program builds the daemon. It is killed at the end of the test.
func (n *node) program() *program {
	n.t.Helper()
	p := &program{n: n, path: n.path("patchbayd")}
	if out, err := exec.Command("go", "build", "-o", p.path, "../cmd/patchbayd").CombinedOutput(); err != nil {
		n.t.Fatalf("go build: %v\n%s", err, out)
	}
	n.t.Cleanup(p.kill)
	return p
}

// start starts it; kill must have ended the one before.
func (p *program) start() {
	p.cmd = exec.Command(p.path, p.n.args...)
	p.cmd.Stderr = p.n.t.Output()
	if err := p.cmd.Start(); err != nil {
		p.n.t.Error(err)
		p.cmd = nil
	}
}

// kill ends it with SIGKILL.
func (p *program) kill() {
	if p.cmd != nil {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
		p.cmd = nil
	}
}

// end ends it with SIGTERM, as kubelet does.
func (p *program) end() {
	if p.cmd == nil {
		return
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	if err := p.cmd.Wait(); err != nil {
		p.n.t.Errorf("the daemon ended with: %v", err)
	}
	p.cmd = nil
}

func (p *program) pid() int { return p.cmd.Process.Pid }
