// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"
)

// Service is a program that runs as long as the guest, started anew when it ends.
type Service struct {
	Name string   `json:"name"`
	Args []string `json:"args"`
	// Socket is a unix socket that takes connections when the service is ready; the
	// next service waits for it.
	Socket string `json:"socket,omitempty"`
	// Log is the file that output is appended to.
	Log string `json:"log"`
}

// ServiceDir has a file <name>.pid for each running service. Who kills the process
// named there has restarted the service.
const ServiceDir = "/run/service"

const (
	restartPause = time.Second
	pollInterval = 50 * time.Millisecond
)

func startServices(services []Service, env []string) {
	for _, s := range services {
		go s.runForever(env)
		s.awaitReady()
	}
}

// runForever runs the service for ever.
func (s Service) runForever(env []string) {
	for {
		s.logf("ended: %v", s.runOnce(env))
		time.Sleep(restartPause)
	}
}

func (s Service) runOnce(env []string) error {
	log, err := s.open()
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(s.Args[0], s.Args[1:]...)
	cmd.Env, cmd.Dir = env, "/"
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return err
	}
	if err := s.writePID(cmd.Process.Pid); err != nil {
		s.logf("%v", err)
	}
	return cmd.Wait()
}

func (s Service) awaitReady() {
	for s.Socket != "" {
		if conn, err := net.Dial("unix", s.Socket); err == nil {
			_ = conn.Close()
			return
		}
		time.Sleep(pollInterval)
	}
}

func (s Service) open() (*os.File, error) {
	return os.OpenFile(s.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
}

func (s Service) writePID(pid int) error {
	if err := os.MkdirAll(ServiceDir, 0o755); err != nil {
		return fmt.Errorf("make service folder: %w", err)
	}
	return os.WriteFile(filepath.Join(ServiceDir, s.Name+".pid"), []byte(strconv.Itoa(pid)+"\n"), 0o644)
}

// logf writes a line of its own into the service's log.
func (s Service) logf(format string, args ...any) {
	log, err := s.open()
	if err != nil {
		return
	}
	defer log.Close()
	fmt.Fprintf(log, "=== %s %s: %s\n", time.Now().Format(time.RFC3339Nano), s.Name, fmt.Sprintf(format, args...))
}
