// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package controlplane_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/patchbay-cni/patchbay/test/lab/controlplane"
	"github.com/patchbay-cni/patchbay/test/source"
)

// newConfig returns a configuration with a folder of its own, short enough for etcd's socket.
func newConfig(t *testing.T) controlplane.Config {
	t.Helper()
	bin, err := source.Path("bin", "kubernetes")
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "controlplane") //nolint:usetesting // t.TempDir is too long a path for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return controlplane.Config{Dir: dir, Bin: bin, DieWithParent: true}
}

func start(t *testing.T, config controlplane.Config) *controlplane.ControlPlane {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	c, err := controlplane.Start(ctx, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Destroy(context.Background()); err != nil {
			t.Errorf("Destroy: %v", err)
		}
		assertDead(t, c, c.Parts()...)
	})
	return c
}

func assertDead(t *testing.T, c *controlplane.ControlPlane, parts ...controlplane.Part) {
	t.Helper()
	for _, part := range parts {
		if c.Alive(part) {
			t.Errorf("%s is alive", part)
		}
	}
}

func client(t *testing.T, c *controlplane.ControlPlane) kubernetes.Interface {
	t.Helper()
	cs, err := kubernetes.NewForConfig(c.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	return cs
}

func kubectl(t *testing.T, config controlplane.Config, c *controlplane.ControlPlane, args ...string) string {
	t.Helper()
	cmd := exec.Command(filepath.Join(config.Bin, "kubectl"), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.AdminKubeconfig())
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("kubectl %v: %v\n%s", args, err, out)
	}
	return string(out)
}

func TestWholeControlPlane(t *testing.T) {
	t.Parallel()
	config := newConfig(t)
	config.ControllerManager, config.Scheduler = true, true
	c := start(t, config)
	cs := client(t, c)

	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "pod", Namespace: metav1.NamespaceDefault},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "none"}}},
	}
	if _, err := cs.CoreV1().Pods(pod.Namespace).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatalf("create Pod right after Start: %v", err)
	}
	eventually(t, "the scheduler looks at the Pod", func() bool {
		got, err := cs.CoreV1().Pods(pod.Namespace).Get(t.Context(), pod.Name, metav1.GetOptions{})
		return err == nil && len(got.Status.Conditions) > 0 &&
			got.Status.Conditions[0].Reason == corev1.PodReasonUnschedulable
	})
	if out := kubectl(t, config, c, "get", "pods", "-o", "name"); out != "pod/pod\n" {
		t.Errorf("kubectl get pods: got %q", out)
	}
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within two minutes: %s", what)
		}
	}
}

// Another command finds all parts by the folder alone.
func TestOpenStopStart(t *testing.T) {
	t.Parallel()
	config := newConfig(t)
	config.Durable = true
	start(t, config)
	c, err := controlplane.Open(config.Dir)
	if err != nil {
		t.Fatal(err)
	}
	createNamespace(t, c, "kept")

	if err := c.Stop(t.Context()); err != nil {
		t.Fatalf("Stop: %v", err)
	}
	assertDead(t, c, c.Parts()...)
	for _, part := range c.Parts() {
		if err := c.StartPart(t.Context(), part); err != nil {
			t.Fatalf("StartPart: %v", err)
		}
	}
	getNamespace(t, c, "kept")
	if _, err := controlplane.Start(t.Context(), config); !errors.Is(err, controlplane.ErrExists) {
		t.Errorf("second Start: got %v, want ErrExists", err)
	}
}

func TestKillAndStartParts(t *testing.T) {
	t.Parallel()
	c := start(t, newConfig(t))
	for _, part := range c.Parts() {
		name := "before-" + string(part)
		createNamespace(t, c, name)
		if err := c.Kill(t.Context(), part); err != nil {
			t.Fatalf("Kill: %v", err)
		}
		assertDead(t, c, part)
		if err := c.StartPart(t.Context(), part); err != nil {
			t.Fatalf("StartPart: %v", err)
		}
		getNamespace(t, c, name)
	}
	if err := c.Restart(t.Context(), controlplane.APIServer); err != nil {
		t.Errorf("Restart: %v", err)
	}
	if err := c.Kill(t.Context(), controlplane.Scheduler); !errors.Is(err, controlplane.ErrNoPart) {
		t.Errorf("Kill of a part that was never asked for: got %v, want ErrNoPart", err)
	}
}

func TestPause(t *testing.T) {
	t.Parallel()
	c := start(t, newConfig(t))
	if err := c.Pause(t.Context(), controlplane.APIServer); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := client(t, c).CoreV1().Namespaces().List(ctx, metav1.ListOptions{}); err == nil {
		t.Error("a paused API server answers")
	}
	if err := c.Resume(controlplane.APIServer); err != nil {
		t.Fatal(err)
	}
	getNamespace(t, c, metav1.NamespaceDefault)
}

// Two clusters on one etcd do not see each other.
func TestSharedEtcd(t *testing.T) {
	t.Parallel()
	one := start(t, newConfig(t))
	config := newConfig(t)
	config.Etcd, config.EtcdPrefix = one.EtcdURL(), "/two"
	two := start(t, config)
	createNamespace(t, one, "only-in-one")
	_, err := client(t, two).CoreV1().Namespaces().Get(t.Context(), "only-in-one", metav1.GetOptions{})
	if err == nil || len(two.Parts()) != 1 {
		t.Errorf("second cluster: got parts %v and the first one's namespace (%v)", two.Parts(), err)
	}
}

func TestStartFails(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		change func(*controlplane.Config)
		want   string
	}{
		"Relative": {
			reason: "Parts run in the folder, so its path must not depend on where they run.",
			change: func(c *controlplane.Config) { c.Dir = "state" }, want: "not an absolute path",
		},
		"LongPath": {
			reason: "The kernel would cut the socket's path.",
			change: func(c *controlplane.Config) { c.Dir = "/tmp/" + strings.Repeat("x", 100) }, want: "too long",
		},
		"NotBuilt": {
			reason: "The message says which command builds the programs.",
			change: func(c *controlplane.Config) { c.Bin = t.TempDir() }, want: "scripts/build-kubernetes",
		},
		"BadFlag": {
			reason: "A part that dies is noticed at once and its log is shown.",
			change: func(c *controlplane.Config) {
				c.ExtraArgs = map[controlplane.Part][]string{controlplane.APIServer: {"--no-such-flag"}}
			},
			want: "unknown flag: --no-such-flag",
		},
		"NoNetns": {
			reason: "A namespace that is missing is named.",
			change: func(c *controlplane.Config) { c.Netns = "no-such-namespace" }, want: "no-such-namespace",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := newConfig(t)
			tc.change(&config)
			_, err := controlplane.Start(t.Context(), config)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("%s\nStart: got %v, want an error with %q", tc.reason, err, tc.want)
			}
			if c, err := controlplane.Open(config.Dir); err == nil {
				assertDead(t, c, c.Parts()...)
			}
		})
	}
}

func TestOpenNothing(t *testing.T) {
	t.Parallel()
	if _, err := controlplane.Open(t.TempDir()); !errors.Is(err, controlplane.ErrNotFound) {
		t.Errorf("Open: got %v, want ErrNone", err)
	}
}

func createNamespace(t *testing.T, c *controlplane.ControlPlane, name string) {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := client(t, c).CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func getNamespace(t *testing.T, c *controlplane.ControlPlane, name string) {
	t.Helper()
	if _, err := client(t, c).CoreV1().Namespaces().Get(t.Context(), name, metav1.GetOptions{}); err != nil {
		t.Fatal(err)
	}
}
