// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"syscall"
)

// Request is a command to run.
type Request struct {
	// Args are the program and its arguments.
	Args []string `json:"args"`
	// Env is added to the server's environment, as KEY=VALUE.
	Env []string `json:"env,omitempty"`
	// Dir is the working folder; empty means "/".
	Dir string `json:"dir,omitempty"`
}

// exitStatus is how a command ended.
type exitStatus struct {
	// Code is the exit code, 128 and the number for a signal.
	Code int `json:"code"`
	// NotStarted says why there is none.
	NotStarted string `json:"notStarted,omitempty"`
}

// Server runs the commands of all who connect.
type Server struct {
	// Env is the environment of all commands.
	Env []string
}

// Serve accepts connections until the listener is closed.
func (s Server) Serve(l net.Listener) error {
	for {
		conn, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("accept: %w", err)
		}
		go s.handle(conn)
	}
}

// handle tells the client all that it can be told; the rest concerns nobody.
func (s Server) handle(conn net.Conn) {
	defer conn.Close()
	k, data, err := readFrame(conn)
	if err != nil || k != kindRequest {
		return
	}
	out := &frames{out: conn}
	var r Request
	if err := json.Unmarshal(data, &r); err != nil || len(r.Args) == 0 {
		_ = out.writeJSON(kindExit, exitStatus{Code: -1, NotStarted: "bad request"})
		return
	}
	_ = out.writeJSON(kindExit, s.run(r, conn, out))
}

func (s Server) run(r Request, in io.Reader, out *frames) exitStatus {
	cmd := exec.Command(r.Args[0], r.Args[1:]...)
	cmd.Env = append(append([]string{}, s.Env...), r.Env...)
	cmd.Dir = r.Dir
	if cmd.Dir == "" {
		cmd.Dir = "/"
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	outputs, err := attach(cmd, stream{out, kindOutput}, stream{out, kindErrorOutput})
	if err != nil {
		return exitStatus{Code: -1, NotStarted: err.Error()}
	}
	defer outputs.close()
	stdin, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return exitStatus{Code: -1, NotStarted: err.Error()}
	}
	outputs.forward()
	go forwardInput(in, stdin, cmd.Process.Pid)
	err = cmd.Wait()
	outputs.drain()
	return exitStatusOf(cmd, err)
}

// forwardInput passes input on. When the client is gone nobody wants the command any more.
func forwardInput(in io.Reader, stdin io.WriteCloser, group int) {
	for {
		k, data, err := readFrame(in)
		switch {
		case err != nil:
			// The group's number is not reused while a member lives.
			_ = syscall.Kill(-group, syscall.SIGKILL)
			_ = stdin.Close()
			return
		case k == kindInputEnd:
			_ = stdin.Close()
		case k == kindInput:
			_, _ = stdin.Write(data) // a command need not read its input
		}
	}
}

func exitStatusOf(cmd *exec.Cmd, err error) exitStatus {
	if cmd.ProcessState == nil {
		return exitStatus{Code: -1, NotStarted: fmt.Sprint(err)}
	}
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return exitStatus{Code: 128 + int(status.Signal())}
	}
	return exitStatus{Code: cmd.ProcessState.ExitCode()}
}
