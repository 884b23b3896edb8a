// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package lab_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-cni/patchbay/test/lab"
	"github.com/patchbay-cni/patchbay/test/lab/node"
	"github.com/patchbay-cni/patchbay/test/lab/remote"
)

// waitTimeout is for anything that takes seconds on an idle machine.
const waitTimeout = 5 * time.Minute

func TestMain(m *testing.M) {
	_, stop := lab.EndOnInterrupt()
	code := m.Run()
	stop()
	os.Exit(code)
}

// mustReturn returns a function that fails the test on an error and else returns the value.
func mustReturn(t *testing.T) func(string, error) string {
	t.Helper()
	return func(out string, err error) string {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(out)
	}
}

func eventually(t *testing.T, what string, holds func(context.Context) error) {
	t.Helper()
	const pause = 200 * time.Millisecond
	ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
	defer cancel()
	for {
		err := holds(ctx)
		if err == nil {
			return
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			t.Fatalf("not within %v: %s: %v", waitTimeout, what, err)
		}
	}
}

// hostNetwork is what the machine's own network looks like.
func hostNetwork(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("sh", "-c", "ip -brief address; ip route; ip rule").CombinedOutput()
	if err != nil {
		t.Fatalf("look at the machine's network: %v: %s", err, out)
	}
	return string(out)
}

func podOn(node string) string {
	return fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: on-%[1]s}, spec: {
  nodeName: %[1]s, terminationGracePeriodSeconds: 0,
  containers: [{name: c, image: "patchbay.local/busybox:lab", imagePullPolicy: Never,
    command: [sh, -c, "echo hello from %[1]s; exec sleep infinity"]}]}}`, node)
}

// TestLab is one long story, since each lab takes half a minute to come up.
func TestLab(t *testing.T) {
	before := hostNetwork(t)
	l := lab.Start(t, lab.Config{})
	ctx := t.Context()
	for _, name := range []string{"node-1", "node-2"} {
		mustReturn(t)(l.KubectlInput(ctx, podOn(name), "apply", "-f", "-"))
	}
	mustReturn(t)(l.Kubectl(ctx, "wait", "--for=condition=Ready", "pod", "--all", "--timeout=300s"))

	steps := []struct {
		name string
		do   func(*testing.T, *lab.Lab)
	}{
		{"PodsReachEachOther", checkPodConnectivity},
		{"ExecInKernel", execInKernel},
		{"UpAgainChangesNothing", upAgainChangesNothing},
		{"CutAndHeal", testCutAndHeal},
		{"PowerCut", testPowerCut},
		{"RestartParts", restartParts},
		{"ImportAgain", importAgain},
		{"ImportRepairs", importRepairs},
		{"UpRepairs", upRepairs},
		{"SecondLab", secondLab},
		{"AddNode", addNode},
		{"Logs", logs},
	}
	for _, step := range steps {
		if !t.Run(step.name, func(t *testing.T) { step.do(t, l) }) {
			t.FailNow()
		}
	}
	if after := hostNetwork(t); after != before {
		t.Errorf("the lab changed the machine's network:\n%s\nto\n%s", before, after)
	}
}

func podIP(ctx context.Context, t *testing.T, l *lab.Lab, name string) string {
	t.Helper()
	return mustReturn(t)(l.Kubectl(ctx, "get", "pod", name, "-o", "jsonpath={.status.podIP}"))
}

func checkPodConnectivity(t *testing.T, l *lab.Lab) {
	t.Helper()
	pings(t, l, "on-node-1", "on-node-2")
	pings(t, l, "on-node-2", "on-node-1")
	// containerd writes the log some time after the container has said it.
	eventually(t, "the log has what the Pod said", func(ctx context.Context) error {
		got, err := l.Kubectl(ctx, "logs", "on-node-2")
		if err == nil && strings.TrimSpace(got) != "hello from node-2" {
			err = fmt.Errorf("kubectl logs: got %q", got)
		}
		return err
	})
}

// pings waits until a Pod gets an answer of another one.
func pings(t *testing.T, l *lab.Lab, from, to string) {
	t.Helper()
	eventually(t, from+" reaches "+to, func(ctx context.Context) error {
		_, err := l.Kubectl(ctx, "exec", from, "--", "ping", "-c", "1", "-w", "10", podIP(ctx, t, l, to))
		return err
	})
}

func execInKernel(t *testing.T, l *lab.Lab) {
	t.Helper()
	if got := mustReturn(t)(l.Exec(t.Context(), "node-2", "hostname")); got != "node-2" {
		t.Errorf("hostname: got %q", got)
	}
	if got := mustReturn(t)(l.Exec(t.Context(), "node-1", "ip", "-brief", "-4", "address", "show", "dev", "ens4")); !strings.Contains(got, "192.168.89.11/24") {
		t.Errorf("trunk card: got %q", got)
	}
	if _, err := l.Exec(t.Context(), "node-1", "sh", "-c", "echo why >&2; exit 3"); err == nil || !strings.Contains(err.Error(), "exit code 3: why") {
		t.Errorf("failing command: got %v", err)
	}
	if _, err := l.Exec(t.Context(), "node-1", "/nowhere"); !errors.Is(err, remote.ErrNotStarted) {
		t.Errorf("missing program: got %v, want ErrNotStarted", err)
	}
	if _, err := l.Exec(t.Context(), "node-9", "true"); !errors.Is(err, lab.ErrNoNode) {
		t.Errorf("missing node: got %v, want ErrNoNode", err)
	}
	// A card that loses large segments passes every ping.
	ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
	defer cancel()
	for _, name := range []string{"node-1", "node-2"} {
		const size = 20 << 20
		var out strings.Builder
		code, err := l.Run(ctx, name, remote.Request{Args: []string{"wc", "-c"}},
			remote.Streams{In: io.LimitReader(zeroReader{}, size), Out: &out})
		if err != nil || code != 0 || strings.TrimSpace(out.String()) != strconv.Itoa(size) {
			t.Errorf("%d bytes of input to %s: got %q, exit code %d, %v", size, name, out.String(), code, err)
		}
	}
	// The machine's files are there to read, and not to write.
	if _, err := l.Exec(t.Context(), "node-1", "sh", "-c", "touch /usr/x"); err == nil {
		t.Error("a node can write to the machine's /usr")
	}
	mustReturn(t)(l.Exec(t.Context(), "node-1", "touch", "/etc/only-on-node-1"))
	for _, elsewhere := range []func() error{
		func() error { _, err := l.Exec(t.Context(), "node-2", "test", "-e", "/etc/only-on-node-1"); return err },
		func() error { _, err := os.Stat("/etc/only-on-node-1"); return err },
	} {
		if elsewhere() == nil {
			t.Error("what a node writes to its /etc is seen elsewhere")
		}
	}
}

// zeroReader is what /dev/zero says.
type zeroReader struct{}

func (zeroReader) Read(data []byte) (int, error) {
	clear(data)
	return len(data), nil
}

func upAgainChangesNothing(t *testing.T, l *lab.Lab) {
	t.Helper()
	boot := func() string {
		return mustReturn(t)(l.Exec(t.Context(), "node-1", "cat", "/proc/sys/kernel/random/boot_id"))
	}
	before := boot()
	if _, err := lab.Up(t.Context(), lab.Config{Name: l.Name()}); err != nil {
		t.Fatal(err)
	}
	if after := boot(); after != before {
		t.Error("up has booted a node that was up")
	}
}

func testCutAndHeal(t *testing.T, l *lab.Lab) {
	t.Helper()
	ping := func(ctx context.Context) error {
		_, err := l.Exec(ctx, "node-2", "ping", "-c", "1", "-W", "1", "10.89.0.1")
		return err
	}
	if err := l.CutNode("node-2"); err != nil {
		t.Fatal(err)
	}
	if ping(t.Context()) == nil {
		t.Error("a node that is cut off reaches the API server's address")
	}
	if err := l.HealNode("node-2"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the node reaches the API server's address again", ping)
}

func testPowerCut(t *testing.T, l *lab.Lab) {
	t.Helper()
	mustReturn(t)(l.Exec(t.Context(), "node-1", "sh", "-c", "echo kept >/var/lib/kept; sync; echo lost >/run/lost"))
	uid := mustReturn(t)(l.Kubectl(t.Context(), "get", "pod", "on-node-1", "-o", "jsonpath={.metadata.uid}"))
	cut := make(chan error, 1)
	go func() {
		in, _ := io.Pipe() // never ends
		_, err := l.Run(t.Context(), "node-1", remote.Request{Args: []string{"sleep", "1000"}}, remote.Streams{In: in})
		cut <- err
	}()
	eventually(t, "a long command runs", func(ctx context.Context) error {
		_, err := l.Exec(ctx, "node-1", "pgrep", "-f", "sleep 1000")
		return err
	})
	if err := l.KillNode(t.Context(), "node-1"); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-cut:
		if !errors.Is(err, remote.ErrLost) {
			t.Errorf("command on a node that lost its power: got %v, want ErrLost", err)
		}
	case <-time.After(waitTimeout):
		t.Error("a command outlives its node")
	}
	if _, err := l.Exec(t.Context(), "node-1", "true"); !errors.Is(err, node.ErrOff) {
		t.Errorf("exec on a node that is off: got %v, want ErrOff", err)
	}
	if err := l.StartNode(t.Context(), "node-1"); err != nil {
		t.Fatal(err)
	}
	if got := mustReturn(t)(l.Exec(t.Context(), "node-1", "cat", "/var/lib/kept")); got != "kept" {
		t.Errorf("file on disk: got %q", got)
	}
	if _, err := l.Exec(t.Context(), "node-1", "cat", "/run/lost"); err == nil {
		t.Error("a file in memory has survived")
	}
	eventually(t, "the Pod runs again and answers", func(ctx context.Context) error {
		_, err := l.Kubectl(ctx, "exec", "on-node-1", "--", "ping", "-c", "1", "-w", "5", podIP(ctx, t, l, "on-node-2"))
		return err
	})
	if now := mustReturn(t)(l.Kubectl(t.Context(), "get", "pod", "on-node-1", "-o", "jsonpath={.metadata.uid}")); now != uid {
		t.Error("the Pod was made anew instead of started again")
	}
}

func restartParts(t *testing.T, l *lab.Lab) {
	t.Helper()
	for _, part := range []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"} {
		if err := l.Restart(t.Context(), part); err != nil {
			t.Errorf("Restart(%s): %v", part, err)
		}
	}
	for _, service := range []string{"containerd", "kubelet"} {
		pid := func(ctx context.Context) string {
			out, err := l.Exec(ctx, "node-2", "pidof", service)
			if err != nil {
				return ""
			}
			return out
		}
		before := pid(t.Context())
		if err := l.Restart(t.Context(), "node-2/"+service); err != nil {
			t.Errorf("Restart(node-2/%s): %v", service, err)
		}
		eventually(t, service+" runs anew", func(ctx context.Context) error {
			if now := pid(ctx); now == "" || now == before {
				return fmt.Errorf("pid %q, before %q", now, before)
			}
			return nil
		})
	}
	if err := l.StopPart(t.Context(), "kube-apiserver"); err != nil {
		t.Error(err)
	}
	if _, err := l.Kubectl(t.Context(), "get", "nodes"); err == nil {
		t.Error("an API server that was stopped answers")
	}
	if err := l.StartPart(t.Context(), "kube-apiserver"); err != nil {
		t.Error(err)
	}
	mustReturn(t)(l.Kubectl(t.Context(), "get", "nodes"))
	for _, part := range []string{"nothing", "node-1/nothing"} {
		if err := l.Restart(t.Context(), part); !errors.Is(err, lab.ErrNoPart) {
			t.Errorf("Restart(%s): got %v, want ErrNoPart", part, err)
		}
	}
}

// A lab that lost a node and a part of its control plane is completed by Up.
func upRepairs(t *testing.T, l *lab.Lab) {
	t.Helper()
	if err := l.KillNode(t.Context(), "node-2"); err != nil {
		t.Fatal(err)
	}
	out := mustReturn(t)(output(exec.Command("ip", "netns", "pids", l.Netns())))
	for pid := range strings.FieldsSeq(out) {
		if name, err := os.ReadFile("/proc/" + pid + "/comm"); err == nil && strings.HasPrefix(string(name), "kube-scheduler") {
			mustReturn(t)(output(exec.Command("kill", "-KILL", pid)))
		}
	}
	bad := func() (parts []string) {
		all, err := l.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range all {
			if !h.OK {
				parts = append(parts, h.Part+" "+h.State)
			}
		}
		return parts
	}
	eventually(t, "status tells what is broken", func(context.Context) error {
		if diff := cmp.Diff([]string{"kube-scheduler down", "node-2 off"}, bad()); diff != "" {
			return errors.New(diff)
		}
		return nil
	})
	if _, err := lab.Up(t.Context(), lab.Config{Name: l.Name()}); err != nil {
		t.Fatal(err)
	}
	if got := bad(); len(got) > 0 {
		t.Errorf("not repaired: %v", got)
	}
}

func output(cmd *exec.Cmd) (string, error) {
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func secondLab(t *testing.T, l *lab.Lab) {
	t.Helper()
	second := lab.Start(t, lab.Config{Nodes: 1})
	if second.Netns() == l.Netns() {
		t.Fatalf("both labs are in %s", l.Netns())
	}
	if got := mustReturn(t)(second.Kubectl(t.Context(), "get", "nodes", "-o", "name")); got != "node/node-1" {
		t.Errorf("nodes of the second lab: got %q", got)
	}
	if got := mustReturn(t)(second.Kubectl(t.Context(), "get", "pods", "-o", "name")); got != "" {
		t.Errorf("the second lab has Pods of the first: %q", got)
	}
}

func addNode(t *testing.T, l *lab.Lab) {
	t.Helper()
	if err := l.AddNode(t.Context(), "node-2", lab.NodeType{}); !errors.Is(err, os.ErrExist) {
		t.Errorf("adding a node twice: got %v, want ErrExist", err)
	}
	if err := l.AddNode(t.Context(), "../x", lab.NodeType{}); err == nil {
		t.Error("a node's name may be a path")
	}
	if err := l.AddNode(t.Context(), "node-3", lab.NodeType{Runtime: lab.RuntimeContainerd2}); err != nil {
		t.Fatal(err)
	}
	mustReturn(t)(l.KubectlInput(t.Context(), podOn("node-3"), "apply", "-f", "-"))
	mustReturn(t)(l.Kubectl(t.Context(), "wait", "--for=condition=Ready", "pod", "on-node-3", "--timeout=300s"))
	pings(t, l, "on-node-3", "on-node-1")
}

func logs(t *testing.T, l *lab.Lab) {
	t.Helper()
	if err := l.KillNode(t.Context(), "node-3"); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := l.Logs(t.Context(), dir); err != nil {
		t.Errorf("Logs: %v", err)
	}
	for _, file := range []string{
		"controlplane/kube-apiserver.log", "cluster/overview.txt", "cluster/pods.txt",
		"node-1/kubelet.log", "node-1/containerd.log", "node-1/network.txt", "node-3/kubelet.log",
	} {
		if info, err := os.Stat(filepath.Join(dir, file)); err != nil || info.Size() == 0 {
			t.Errorf("%s: missing or empty (%v)", file, err)
		}
	}
	containers, err := os.ReadFile(filepath.Join(dir, "node-2/containers.txt"))
	if err != nil || !strings.Contains(string(containers), "hello from node-2") {
		t.Errorf("containers' logs lack what the Pod said (%v)", err)
	}
}

// A lab that was stopped half-way up, or that lost its files, leaves nothing either.
func TestDownAfterCrash(t *testing.T) {
	cases := map[string]struct {
		reason string
		crash  func(t *testing.T, name string)
	}{
		"InterruptedUp": {
			reason: "An interrupt while the nodes boot leaves processes of all kinds.",
			crash: func(t *testing.T, name string) {
				t.Helper()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				progress := writerFunc(func(line string) {
					if strings.Contains(line, "boot nodes …") {
						time.AfterFunc(time.Second, cancel)
					}
				})
				if _, err := lab.Up(ctx, lab.Config{Name: name, Progress: progress}); !errors.Is(err, context.Canceled) {
					t.Fatalf("Up: got %v, want context.Canceled", err)
				}
			},
		},
		"LostFiles": {
			reason: "Processes are found without the files that name them.",
			crash: func(t *testing.T, name string) {
				t.Helper()
				l, err := lab.Up(t.Context(), lab.Config{Name: name, Nodes: 1})
				if err != nil {
					t.Fatal(err)
				}
				if err := os.RemoveAll("/run/patchbay-lab/" + l.Name()); err != nil {
					t.Fatal(err)
				}
				// A new lab of that name gets neither the old one's disks nor its processes.
				if l, err = lab.Up(t.Context(), lab.Config{Name: name, Nodes: 1}); err != nil {
					t.Fatal(err)
				}
				if err := os.RemoveAll("/run/patchbay-lab/" + l.Name()); err != nil {
					t.Fatal(err)
				}
			},
		},
		"NeverWasUp": {
			reason: "No lab is nothing to do.",
			crash:  func(*testing.T, string) {},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			id := strings.ToLower(fmt.Sprintf("%s-%d", name, os.Getpid()))
			t.Cleanup(func() {
				if err := lab.Down(context.WithoutCancel(t.Context()), id); err != nil { // for the case that the test failed before
					t.Error(err)
				}
			})
			tc.crash(t, id)
			if err := lab.Down(t.Context(), id); err != nil {
				t.Errorf("%s\nDown: %v", tc.reason, err)
			}
			left, err := lab.Leftovers(id)
			if err != nil || len(left) > 0 {
				t.Errorf("%s\nleft behind: %v (error: %v)", tc.reason, left, err)
			}
		})
	}
}

type writerFunc func(string)

func (f writerFunc) Write(line []byte) (int, error) { f(string(line)); return len(line), nil }
