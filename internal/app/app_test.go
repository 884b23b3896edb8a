// SPDX-License-Identifier: Apache-2.0

package app

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// asProgram is the environment variable that makes this test binary a program; its value is the test's.
const asProgram = "PATCHBAY_APP_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	switch os.Getenv(asProgram) {
	case "stuck":
		os.Exit(Main("stuck", runStuck))
	case "failing":
		os.Exit(Main("failing", runFailing))
	case "exited":
		os.Exit(Main("exited", func(context.Context, []string, io.Writer, io.Writer) error { return errors.Join(Exited(7), nil) }))
	}
	os.Exit(m.Run())
}

// runStuck does not return after its context has ended, which it prints.
func runStuck(ctx context.Context, _ []string, stdout, _ io.Writer) error {
	fmt.Fprintln(stdout, "started")
	<-ctx.Done()
	fmt.Fprintln(stdout, "stopping")
	select {}
}

func runFailing(context.Context, []string, io.Writer, io.Writer) error {
	return fmt.Errorf("read: %w", WithExitCode(errors.New("differs"), 2))
}

// The first signal ends the context, and the second one ends a program that does not return.
func TestSecondSignal(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), asProgram+"=stuck")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for _, want := range []string{"started", "stopping"} {
		if !lines.Scan() || lines.Text() != want {
			t.Fatalf("got %q, %v, want %q", lines.Text(), lines.Err(), want)
		}
		if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	// The signal handler is removed soon after the context has ended.
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for {
		select {
		case err = <-ended:
		case <-again.C:
			if err := cmd.Process.Signal(syscall.SIGINT); err != nil && !errors.Is(err, os.ErrProcessDone) {
				t.Fatal(err)
			}
			continue
		}
		break
	}
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGINT {
		t.Errorf("the program ended with %v, want the second signal", err)
	}
}

// An error may have an exit code of its own.
func TestExitCode(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), asProgram+"=failing")
	out, err := cmd.CombinedOutput()
	if code := cmd.ProcessState.ExitCode(); code != 2 || string(out) != "failing: read: differs\n" {
		t.Errorf("got exit code %d, %q, %v, want 2", code, out, err)
	}
}

// The error of a program that has run in place of this one is not printed again.
func TestExited(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), asProgram+"=exited")
	out, err := cmd.CombinedOutput()
	if code := cmd.ProcessState.ExitCode(); code != 7 || len(out) > 0 {
		t.Errorf("got exit code %d, %q, %v, want 7", code, out, err)
	}
}
