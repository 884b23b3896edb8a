// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package hub

import (
	"bytes"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/patchbay-cni/patchbay/internal/app"
	"github.com/patchbay-cni/patchbay/test/docs"
	"github.com/patchbay-cni/patchbay/test/lab/controlplane"
	"github.com/patchbay-cni/patchbay/test/source"
)

// asProgram is the environment variable that makes this test binary act as patchbay-hub.
const asProgram = "PATCHBAY_HUB_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		os.Exit(app.Main("patchbay-hub", Run))
		return
	}
	os.Exit(m.Run())
}

// waitTimeout is how long something may take on a busy machine.
const waitTimeout = 3 * time.Minute

// A hub that was killed starts again with its data, a second hub cannot use its folder, and a hub that is
// stopped leaves no program running. A backup of its folder, by the page's commands, restores it.
func TestUpAgain(t *testing.T) {
	t.Parallel()
	h := newUpHub(t)
	h.start(t)
	first := h.client(t)
	note := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "note"}}
	if _, err := first.CoreV1().ConfigMaps("default").Create(t.Context(), note, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	authority := h.file(t, "ca.crt")

	var out bytes.Buffer
	err := Run(t.Context(), h.args(t), &out, &out)
	if err == nil || !strings.Contains(err.Error(), "--data-dir") || !strings.Contains(err.Error(), "a hub runs on "+h.dir) {
		t.Errorf("a second hub in the folder: got %v", err)
	}
	if _, err := first.CoreV1().ConfigMaps("default").Get(t.Context(), "note", metav1.GetOptions{}); err != nil {
		t.Errorf("the first hub after the start of the second: %v", err)
	}

	if err := h.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = h.wait(t)
	backup := t.TempDir()
	save, err := h.fromPage("tar -C /tmp/hub -czf")
	h.runIn(t, backup, save, err)
	h.start(t) // at once
	if _, err := h.client(t).CoreV1().ConfigMaps("default").Get(t.Context(), "note", metav1.GetOptions{}); err != nil {
		t.Errorf("after kill -9: %v", err)
	}
	if h.file(t, "ca.crt") != authority {
		t.Error("the CA changed: agents would not trust the hub")
	}
	late := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "late"}}
	if _, err := h.client(t).CoreV1().ConfigMaps("default").Create(t.Context(), late, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	h.stop(t)

	restore, err := h.fromPage("rm -rf /tmp/hub")
	h.runIn(t, backup, restore, err)
	h.start(t)
	if _, err := h.client(t).CoreV1().ConfigMaps("default").Get(t.Context(), "note", metav1.GetOptions{}); err != nil {
		t.Errorf("after the restore: %v", err)
	}
	if _, err := h.client(t).CoreV1().ConfigMaps("default").Get(t.Context(), "late", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("an object from after the backup: got %v, want NotFound", err)
	}
	if h.file(t, "ca.crt") != authority {
		t.Error("the CA changed with the restore: agents would not trust the hub")
	}
	h.stop(t)
}

// fromPage returns the commands of the block of docs/placement.md that has a text, for this hub.
func (h *upHub) fromPage(text string) (string, error) {
	page, err := docs.Read("docs/placement.md")
	if err != nil {
		return "", err
	}
	block, err := page.Block(text)
	return strings.ReplaceAll(strings.Join(block.Lines, "\n"), "/tmp/hub", h.dir), err
}

// runIn runs commands in a folder.
func (h *upHub) runIn(t *testing.T, folder, commands string, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	run := exec.CommandContext(t.Context(), "bash", "-euc", commands)
	run.Dir = folder
	if out, err := run.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", commands, err, out)
	}
}

// stop stops the hub as Ctrl-C does.
func (h *upHub) stop(t *testing.T) {
	t.Helper()
	if err := h.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := h.wait(t); err != nil {
		t.Errorf("after SIGTERM: %v\n%s", err, h.out.String())
	}
	if left := h.left(t); len(left) > 0 {
		t.Errorf("still running: %v", left)
	}
}

// When a program ends, the hub ends, and its error names the log of the program.
func TestUpWithoutEtcd(t *testing.T) {
	t.Parallel()
	h := newUpHub(t)
	h.start(t)
	for _, pid := range h.left(t) {
		if name, _ := os.Readlink(filepath.Join("/proc", strconv.Itoa(pid), "exe")); filepath.Base(name) == "etcd" {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := h.wait(t); err == nil || !strings.Contains(h.out.String(), "etcd ended") || !strings.Contains(h.out.String(), filepath.Join(h.dir, "etcd.log")) {
		t.Errorf("got %v, %q", err, h.out.String())
	}
	if left := h.left(t); len(left) > 0 {
		t.Errorf("still running: %v", left)
	}
}

// A hub that is stopped during its start returns no error, and leaves no program running.
func TestUpEndsDuringStart(t *testing.T) {
	t.Parallel()
	h := newUpHub(t)
	has := func(file string) func() bool {
		return func() bool { _, err := os.Stat(filepath.Join(h.dir, file)); return err == nil }
	}
	for _, tc := range []struct {
		reason string
		far    func() bool
	}{
		{"no program runs yet", h.printed("Starting a hub in")},
		{"etcd has files and no entry", has("etcd.first/member/wal")},
		{"the API server does not answer yet", has("kube-apiserver.log")},
		{"the API server does not serve the placement kinds yet", has("kube-controller-manager.log")},
		{"the hub starts its controllers", h.printed("The hub is up")},
		{"the hub syncs its caches", func() bool {
			raw, err := os.ReadFile(filepath.Join(h.dir, "patchbay-hub.log"))
			return err == nil && strings.Contains(string(raw), "Starting EventSource")
		}},
	} {
		_ = os.Remove(filepath.Join(h.dir, "kube-apiserver.log"))
		_ = os.Remove(filepath.Join(h.dir, "kube-controller-manager.log"))
		_ = os.Remove(filepath.Join(h.dir, "patchbay-hub.log"))
		h.startUntil(t, tc.far)
		if err := h.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if err := h.wait(t); err != nil {
			t.Errorf("%s: got %v, want no error\n%s", tc.reason, err, h.out.String())
		}
		if left := h.left(t); len(left) > 0 {
			t.Errorf("%s: still running: %v", tc.reason, left)
		}
	}
}

// upHub is `patchbay-hub up`.
type upHub struct {
	dir string
	at  netip.AddrPort
	cmd *exec.Cmd
	out *log
}

func newUpHub(t *testing.T) *upHub {
	t.Helper()
	free, err := controlplane.FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	return &upHub{dir: filepath.Join(t.TempDir(), "hub"), at: free}
}

func (h *upHub) args(t *testing.T) []string {
	t.Helper()
	bin, err := source.Path("bin", "kubernetes")
	if err != nil {
		t.Fatal(err)
	}
	return []string{
		"up", "--bin-dir=" + bin, "--data-dir=" + h.dir, "--health-address=127.0.0.1:0",
		"--address=" + h.at.Addr().String(), fmt.Sprint("--port=", h.at.Port()),
	}
}

// start runs the hub until it has printed the next steps.
func (h *upHub) start(t *testing.T) {
	t.Helper()
	h.startUntil(t, h.printed("kubectl patchbay cluster accept east"))
}

// printed returns a function that tells whether the hub has printed a text.
func (h *upHub) printed(text string) func() bool {
	return func() bool { return strings.Contains(h.out.String(), text) }
}

// startUntil runs the hub until far returns true.
func (h *upHub) startUntil(t *testing.T, far func() bool) {
	t.Helper()
	h.out = &log{}
	h.cmd = exec.Command(os.Args[0], h.args(t)...)
	h.cmd.Env = append(os.Environ(), asProgram+"=1")
	h.cmd.Stdout, h.cmd.Stderr = h.out, h.out
	h.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if err := h.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	started := h.cmd
	t.Cleanup(func() { _ = started.Process.Kill() })
	for end := time.Now().Add(waitTimeout); !far(); <-time.After(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the start took longer than %s: %s", waitTimeout, h.out.String())
		}
	}
}

// wait waits until the hub has ended, and fails the test with a stack dump when it does not.
func (h *upHub) wait(t *testing.T) error {
	t.Helper()
	stuck := time.AfterFunc(waitTimeout, func() { _ = h.cmd.Process.Signal(syscall.SIGQUIT) })
	err := h.cmd.Wait()
	if !stuck.Stop() {
		t.Fatalf("did not end within %s: %s", waitTimeout, h.out.String())
	}
	return err
}

func (h *upHub) client(t *testing.T) *kubernetes.Clientset {
	t.Helper()
	cfg, err := clientcmd.BuildConfigFromFlags("", filepath.Join(h.dir, "admin.kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	c, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (h *upHub) file(t *testing.T, name string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(h.dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// left returns the processes with the hub's folder as their working folder.
func (h *upHub) left(t *testing.T) []int {
	t.Helper()
	dirs, err := filepath.Glob("/proc/[0-9]*/cwd")
	if err != nil {
		t.Fatal(err)
	}
	var found []int
	for _, link := range dirs {
		if at, err := os.Readlink(link); err == nil && at == h.dir {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(link)))
			if err != nil {
				t.Fatal(err)
			}
			found = append(found, pid)
		}
	}
	return found
}

// log collects the output of a program, and can be read at the same time.
type log struct {
	mu  sync.Mutex
	all bytes.Buffer
}

// Write implements io.Writer.
func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.Write(p)
}

// String returns the output so far.
func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.String()
}
