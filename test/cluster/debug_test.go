// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package cluster

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/patchbay-cni/patchbay/test/apitest"
	"github.com/patchbay-cni/patchbay/test/lab/netns"
	"github.com/patchbay-cni/patchbay/test/lab/process"
	"github.com/patchbay-cni/patchbay/test/source"
)

// kcp 4: people at a hub read logs, run commands, forward ports and copy files in Pods of a cluster, while each packet with
// which the hub could open a connection to the cluster is dropped. The agent is a Pod of the cluster.
func TestDebugFromTheHub(t *testing.T) {
	t.Parallel()
	h := startHub(t, shared)
	ns := h.joinCluster(t, "lab")
	h.placeWeb(t, ns)

	t.Run("GetPods", func(t *testing.T) {
		if out := h.run(t, "", "kubectl", "patchbay", "get", "pods", "deployment/web", "-n", ns); strings.Count(out, "Running") != 2 {
			t.Errorf("got %s", out)
		}
	})
	t.Run("Exec", func(t *testing.T) {
		// script(1) gives kubectl a terminal.
		cmd := h.command(t.Context(), t, "script", "-qefc", "kubectl patchbay exec -it deployment/web -n "+ns+" -- sh", os.DevNull)
		cmd.Stdin = strings.NewReader("test -t 0 && echo a terminal of $(hostname)\nexit 7\n")
		out, _ := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); code != 7 || !strings.Contains(string(out), "a terminal of web-") {
			t.Errorf("got exit code %d, want that of the command (7): %s", code, out)
		}
	})
	t.Run("Logs", func(t *testing.T) { h.followLogs(t, ns) })
	t.Run("PortForward", func(t *testing.T) { h.forwardPort(t, ns) })
	t.Run("Copy", func(t *testing.T) {
		h.run(t, "", "kubectl", "patchbay", "context", "lab", "-n", ns)
		pod := strings.Fields(h.run(t, "", "kubectl", "patchbay", "get", "pods", "deployment/web", "-n", ns, "--no-headers"))[1]
		file := filepath.Join(t.TempDir(), "copy")
		h.run(t, "", "kubectl", "--context=hub/lab", "cp", pod+":/www/index.html", file)
		if got, err := os.ReadFile(file); err != nil || strings.TrimSpace(string(got)) != pod {
			t.Errorf("got %q, %v, want the name of Pod %s", got, err, pod)
		}
	})

	if dropped := h.droppedPackets(t); dropped != "packets 0" {
		t.Errorf("the hub tried to open connections to the cluster: %s", dropped)
	}
	config, err := h.lab.RESTConfig()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	if conn, err := netns.Dial(ctx, h.netns, net.Dialer{}, "tcp", strings.TrimPrefix(config.Host, "https://")); err == nil {
		_ = conn.Close()
		t.Error("the hub's host can open a connection to the cluster's API server")
	}
	if h.droppedPackets(t) == "packets 0" {
		t.Error("the rule has dropped nothing when the hub's host opened a connection")
	}
}

// labHub is a hub in a network namespace of its own, with a cable to the lab's management network.
type labHub struct {
	*cluster

	netns, kubeconfig, log string
}

// hubAddress is one that no node has.
const hubAddress = "10.89.0.200"

// dropSYNs drops the packets that open connections to others.
const dropSYNs = `table inet hub {
	chain output {
		type filter hook output priority 0; policy accept;
		oifname != "lo" tcp flags & (syn|ack) == syn counter drop
	}
}
`

// startHub starts a hub until the test ends.
func startHub(t *testing.T, c *cluster) *labHub {
	t.Helper()
	dir := t.TempDir()
	h := &labHub{cluster: c, netns: c.lab.Netns() + "-hub", kubeconfig: filepath.Join(dir, "hub", "admin.kubeconfig"), log: filepath.Join(dir, "log")}
	if err := netns.Add(h.netns); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := netns.Delete(h.netns); err != nil {
			t.Error(err)
		}
	})
	if err := netns.Batch(c.lab.Netns(), "link add hub type veth peer name eth0 netns "+h.netns, "link set hub master mgmt up"); err != nil {
		t.Fatal(err)
	}
	if err := netns.Batch(h.netns, "address add "+hubAddress+"/24 dev eth0", "link set eth0 up", "route add default via 10.89.0.1"); err != nil {
		t.Fatal(err)
	}
	h.run(t, dropSYNs, "nft", "-f", "-")
	id, err := process.Start(process.Spec{
		Args: []string{h.bin(t, "patchbay-hub"), "up", "--bin-dir=" + h.bin(t, "kubernetes"),
			"--data-dir=" + filepath.Dir(h.kubeconfig), "--health-address=127.0.0.1:0", "--address=" + hubAddress, "--cluster=lab"},
		Netns: h.netns, Dir: dir, Log: h.log, DieWithParent: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := id.Stop(context.Background(), waitTimeout); err != nil {
			t.Error(err)
		}
	})
	c.await(t.Context(), t, "the hub is up", func(context.Context) string {
		out, _ := os.ReadFile(h.log)
		if strings.Contains(string(out), "cluster accept lab") {
			return ""
		}
		return "its log is: " + string(out)
	})
	return h
}

// bin returns a path below bin/.
func (h *labHub) bin(t *testing.T, elements ...string) string {
	t.Helper()
	path, err := source.Path(append([]string{"bin"}, elements...)...)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// command is a program on the hub's host, whose kubectl is for the hub's admin.
func (h *labHub) command(ctx context.Context, t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(ctx, "nsenter", append([]string{"--net=" + netns.Path(h.netns), "--"}, args...)...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+h.kubeconfig, "HOME="+filepath.Dir(h.kubeconfig),
		"PATH="+strings.Join([]string{h.bin(t), h.bin(t, "kubernetes"), os.Getenv("PATH")}, ":"))
	return cmd
}

// run returns what a program on the hub's host prints.
func (h *labHub) run(t *testing.T, input string, args ...string) string {
	t.Helper()
	cmd := h.command(t.Context(), t, args...)
	cmd.Stdin = strings.NewReader(input)
	var errOut strings.Builder
	cmd.Stderr = &errOut
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v: %s%s", args, err, out, errOut.String())
	}
	return string(out)
}

// droppedPackets returns the counter of dropSYNs.
func (h *labHub) droppedPackets(t *testing.T) string {
	t.Helper()
	_, counter, _ := strings.Cut(h.run(t, "", "nft", "list", "table", "inet", "hub"), "counter ")
	packets, _, _ := strings.Cut(counter, " bytes")
	return packets
}

// joinCluster joins the lab as people do, opens a namespace to the hub, and returns its name.
func (h *labHub) joinCluster(t *testing.T, name string) string {
	t.Helper()
	if err := h.lab.Import(t.Context(), h.bin(t, "images", "patchbay-agent.tar")); err != nil {
		t.Fatal(err)
	}
	out := h.run(t, "", "kubectl", "patchbay", "hub", "token", name)
	_, line, ok := strings.Cut(out, "kubectl patchbay cluster join ")
	if !ok {
		t.Fatalf("no command to join in: %s", out)
	}
	line, _, _ = strings.Cut(line, "\n")
	// With LAB the agent of another run may be there.
	args := append([]string{"patchbay", "cluster", "join", "--debug-access", "--force"}, strings.Fields(line)...)
	if _, err := h.lab.Kubectl(t.Context(), args...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := h.lab.Kubectl(context.Background(), "delete", "deployment", "-n", "patchbay-system", "patchbay-agent"); err != nil {
			t.Error(err)
		}
	})
	h.run(t, "", "kubectl", "patchbay", "cluster", "accept", name)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: apitest.Name("debug"), Labels: map[string]string{"placement.patchbay.io/access": "create"}}}
	h.createNamespace(t, ns)
	if _, err := h.lab.Kubectl(t.Context(), "create", "rolebinding", "admin", "-n", ns.Name, "--clusterrole=edit", "--user=patchbay:admin"); err != nil {
		t.Fatal(err)
	}
	return ns.Name
}

// placeWeb places a Deployment of web servers whose page is the name of their Pod, and waits until they run.
func (h *labHub) placeWeb(t *testing.T, ns string) {
	t.Helper()
	h.run(t, "", "kubectl", "create", "namespace", ns)
	h.run(t, fmt.Sprintf(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, annotations: {placement.patchbay.io/clusters: lab}}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 0
      containers:
        - name: web
          image: %s
          command: [sh, -c, "mkdir -p /www; hostname > /www/index.html; httpd -p 80 -h /www; while true; do echo tick; sleep 1; done"]
`, busybox), "kubectl", "apply", "-n", ns, "-f", "-")
	h.await(t.Context(), t, "the Pods run in the cluster, and the agent is attached", func(ctx context.Context) string {
		out, err := h.command(ctx, t, "kubectl", "patchbay", "get", "pods", "deployment/web", "-n", ns).CombinedOutput()
		if err == nil && strings.Count(string(out), "1/1") == 2 {
			return ""
		}
		return fmt.Sprint(string(out), err)
	})
}

// followLogs reads lines of a log as they are written.
func (h *labHub) followLogs(t *testing.T, ns string) {
	t.Helper()
	cmd := h.command(context.Background(), t, "kubectl", "patchbay", "logs", "-n", ns, "deployment/web", "-f", "--since=1s")
	lines := h.start(t, cmd)
	began := time.Now()
	for range 3 {
		if line, err := lines.ReadString('\n'); err != nil || line != "tick\n" {
			t.Fatalf("got %q, %v", line, err)
		}
	}
	if took := time.Since(began); took < time.Second {
		t.Errorf("got 3 lines in %v, of which the container writes one in a second", took)
	}
}

// forwardPort reads a page of a Pod over a local port.
func (h *labHub) forwardPort(t *testing.T, ns string) {
	t.Helper()
	cmd := h.command(context.Background(), t, "kubectl", "patchbay", "port-forward", "-n", ns, "deployment/web", ":80")
	line, err := h.start(t, cmd).ReadString('\n')
	_, port, ok := strings.Cut(strings.TrimSuffix(line, " -> 80\n"), "127.0.0.1:")
	if err != nil || !ok {
		t.Fatalf("got %q, %v", line, err)
	}
	if page := h.run(t, "", "busybox", "wget", "-qO-", "http://127.0.0.1:"+port+"/"); !strings.HasPrefix(page, "web-") {
		t.Errorf("got %q, want the name of a Pod", page)
	}
}

// start starts a program, ends it as Ctrl-C does when the test ends, and checks that it leaves no kubeconfig.
func (h *labHub) start(t *testing.T, cmd *exec.Cmd) *bufio.Reader {
	t.Helper()
	temp := t.TempDir()
	cmd.Env = append(cmd.Env, "TMPDIR="+temp)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(unix.SIGINT)
		_, _ = io.Copy(io.Discard, out)
		_ = cmd.Wait()
		if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
			t.Errorf("the command has left %v (error: %v)", left, err)
		}
	})
	return bufio.NewReader(out)
}
