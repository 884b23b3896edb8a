// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// computeVariable marks the process that TestPauseWaitsForAllThreads pauses.
const computeVariable = "PATCHBAY_TEST_COMPUTES"

func TestMain(m *testing.M) {
	if os.Getenv(computeVariable) != "" {
		computeOnManyThreads()
	}
	os.Exit(m.Run())
}

// computeOnManyThreads keeps threads of its own busy until the process is killed.
func computeOnManyThreads() {
	for range 8 {
		go func() {
			runtime.LockOSThread()
			for {
				runtime.Gosched()
			}
		}()
	}
	_, _ = os.Stdout.WriteString("ready\n")
	select {}
}

func start(t *testing.T, spec Spec) ID {
	t.Helper()
	id, err := Start(spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := id.Kill(context.Background()); err != nil {
			t.Errorf("Kill: %v", err)
		}
	})
	return id
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

func TestStartWritesOutputToLog(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	log := filepath.Join(dir, "log")
	start(t, Spec{Args: []string{"sh", "-c", "pwd; echo $WORD >&2"}, Dir: dir, Env: []string{"WORD=hello"}, Log: log})
	want := dir + "\nhello\n"
	eventually(t, "output in log", func() bool {
		got, _ := os.ReadFile(log)
		return string(got) == want
	})
}

func TestStartSaysWhatCannotRun(t *testing.T) {
	t.Parallel()
	_, err := Start(Spec{Args: []string{"/nowhere/program"}})
	if !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "/nowhere/program") {
		t.Errorf("Start: got %v, want a not-exist error that names the program", err)
	}
}

func TestStopEndsPolitely(t *testing.T) {
	t.Parallel()
	log := filepath.Join(t.TempDir(), "log")
	id := start(t, Spec{
		Args: []string{"sh", "-c", `trap 'echo bye; exit' TERM; echo ready; while :; do sleep 0.01; done`}, Log: log,
	})
	eventually(t, "ready", func() bool { got, _ := os.ReadFile(log); return string(got) == "ready\n" })
	if err := id.Stop(t.Context(), time.Minute); err != nil {
		t.Fatalf("Stop: %v", err)
	}
	if got, _ := os.ReadFile(log); string(got) != "ready\nbye\n" {
		t.Errorf("log: got %q", got)
	}
	if id.Alive() {
		t.Error("alive after Stop")
	}
}

func TestStopKillsAfterGrace(t *testing.T) {
	t.Parallel()
	log := filepath.Join(t.TempDir(), "log")
	id := start(t, Spec{Args: []string{"sh", "-c", `trap '' TERM; echo ready; while :; do sleep 0.01; done`}, Log: log})
	eventually(t, "ready", func() bool { got, _ := os.ReadFile(log); return len(got) > 0 })
	if err := id.Stop(t.Context(), 100*time.Millisecond); err != nil {
		t.Fatalf("Stop: %v", err)
	}
	if id.Alive() {
		t.Error("alive after Stop")
	}
}

// A test that pauses an API server counts on no answer from then on.
func TestPauseWaitsForAllThreads(t *testing.T) {
	t.Parallel()
	log := filepath.Join(t.TempDir(), "log")
	id := start(t, Spec{Args: []string{os.Args[0]}, Env: []string{computeVariable + "=1"}, Log: log})
	eventually(t, "threads compute", func() bool { got, _ := os.ReadFile(log); return strings.Contains(string(got), "ready") })
	for range 20 {
		if err := id.Pause(t.Context()); err != nil {
			t.Fatalf("Pause: %v", err)
		}
		if stopped, err := id.stopped(); !stopped || err != nil {
			t.Fatalf("after Pause: got stopped %t (error %v), want all threads stopped", stopped, err)
		}
		if err := id.Signal(unix.SIGCONT); err != nil {
			t.Fatal(err)
		}
	}
}

func TestGoneProcess(t *testing.T) {
	t.Parallel()
	id := start(t, Spec{Args: []string{"true"}})
	eventually(t, "end", func() bool { return !id.Alive() })
	if err := id.Signal(unix.SIGTERM); !errors.Is(err, ErrGone) {
		t.Errorf("Signal: got %v, want ErrGone", err)
	}
	if err := id.Stop(t.Context(), time.Second); err != nil {
		t.Errorf("Stop: %v", err)
	}
}

func TestZeroIDIsGone(t *testing.T) {
	t.Parallel()
	if err := (ID{}).Kill(t.Context()); err != nil {
		t.Errorf("Kill: %v", err)
	}
	if err := (ID{}).Signal(unix.SIGTERM); !errors.Is(err, ErrGone) {
		t.Errorf("Signal: got %v, want ErrGone", err)
	}
}

func TestReusedPIDIsLeftAlone(t *testing.T) {
	t.Parallel()
	id := start(t, Spec{Args: []string{"sleep", "60"}})
	stale := ID{PID: id.PID, Start: id.Start - 1}
	if err := stale.Kill(t.Context()); err != nil {
		t.Fatalf("Kill: %v", err)
	}
	if stale.Alive() || !id.Alive() {
		t.Errorf("alive: stale %t, actual %t; want false, true", stale.Alive(), id.Alive())
	}
}

// The number of a process that is gone may be a thread's of another one by now.
func TestThreadIsNoProcess(t *testing.T) {
	t.Parallel()
	threads := make(chan int)
	done := make(chan struct{})
	defer close(done)
	for range 2 { // one of them may be the process's first thread
		go func() {
			runtime.LockOSThread()
			threads <- unix.Gettid()
			<-done
		}()
	}
	for range 2 {
		if thread := <-threads; thread != os.Getpid() {
			if err := (ID{PID: thread, Start: 1}).Kill(t.Context()); err != nil {
				t.Errorf("Kill: %v", err)
			}
		}
	}
}

// TestDieWithParent runs this test binary once more as the parent that dies without cleaning up.
func TestDieWithParent(t *testing.T) {
	t.Parallel()
	const role = "PROCESS_TEST_TIED"
	if os.Getenv(role) != "" {
		id, err := Start(Spec{Args: []string{"sleep", "60"}, DieWithParent: os.Getenv(role) == "tied"})
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("child=%d/%d", id.PID, id.Start)
		return
	}
	for name, want := range map[string]bool{"tied": false, "free": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command(os.Args[0], "-test.run=^TestDieWithParent$", "-test.v")
			cmd.Env = append(os.Environ(), role+"="+name)
			out, err := cmd.Output()
			if err != nil {
				t.Fatal(err)
			}
			id := parseChild(t, string(out))
			t.Cleanup(func() { _ = id.Kill(context.Background()) })
			if want {
				if !id.Alive() {
					t.Error("a free process died with its parent")
				}
				return
			}
			eventually(t, "death with the parent", func() bool { return !id.Alive() })
		})
	}
}

func parseChild(t *testing.T, out string) ID {
	t.Helper()
	_, rest, _ := strings.Cut(out, "child=")
	line, _, _ := strings.Cut(rest, "\n")
	pid, ticks, _ := strings.Cut(line, "/")
	p, err1 := strconv.Atoi(pid)
	s, err2 := strconv.ParseUint(ticks, 10, 64)
	if err := errors.Join(err1, err2); err != nil {
		t.Fatalf("no child in %q: %v", out, err)
	}
	return ID{PID: p, Start: s}
}

func TestParseStat(t *testing.T) {
	t.Parallel()
	const tail = " S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20"
	cases := map[string]struct {
		reason string
		raw    string
		start  uint64
		fails  bool
	}{
		"Plain":    {reason: "Field 22 is the start time.", raw: "7 (sleep)" + tail, start: 4711},
		"OddName":  {reason: "A name may look like fields.", raw: "7 (a) S 1 (b)" + tail, start: 4711},
		"Empty":    {reason: "A vanished process reads as nothing.", raw: "", fails: true},
		"Short":    {reason: "A cut line is refused.", raw: "7 (sleep) S 1 2", fails: true},
		"NoNumber": {reason: "A start time must be one.", raw: "7 (x)" + strings.Replace(tail, "4711", "x", 1), fails: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, _, err := parseStat([]byte(tc.raw))
			if got != tc.start || (err != nil) != tc.fails {
				t.Errorf("%s\nparseStat: got %d, %v; want %d, error %t", tc.reason, got, err, tc.start, tc.fails)
			}
		})
	}
}

// The priority is that of the process and, where the kernel groups tasks by session, of its session.
func TestNice(t *testing.T) {
	t.Parallel()
	id := start(t, Spec{Args: []string{"sleep", "600"}, Nice: 5})
	// The system call returns 20 less the priority (getpriority(2)).
	raw, err := unix.Getpriority(unix.PRIO_PROCESS, id.PID)
	if err != nil || raw != 20-5 {
		t.Errorf("priority of the process: got %d, %v, want 5", 20-raw, err)
	}
	session, err := os.ReadFile("/proc/" + strconv.Itoa(id.PID) + "/autogroup")
	if err == nil && len(session) > 0 && !strings.HasSuffix(strings.TrimSpace(string(session)), " nice 5") {
		t.Errorf("priority of the session: got %q, want 5", session)
	}
}
