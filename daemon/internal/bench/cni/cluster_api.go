// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

// Names in the cluster, and addresses of its node daemon.
const (
	nodeName    = "bench-node"
	networkName = "bench"
	daemonHTTP  = "127.0.0.1:9640"
	// daemonMetrics is the address of the metrics.
	daemonMetrics = "127.0.0.1:9644"
)

// clusterSocket returns the socket of the daemon in the cluster.
func clusterSocket(dir string) string { return filepath.Join(dir, "cluster", "s") }

// benchCluster is a cluster of one node: etcd, API server and the process of the node daemon.
type benchCluster struct {
	env     *apitest.Env
	scraper *apitest.Scraper
	daemon  *exec.Cmd
	pods    []pod
}

// startCluster starts a cluster and returns when its daemon is ready. All processes run in this network
// namespace.
func startCluster(ctx context.Context, o options) (_ *benchCluster, err error) {
	c := &benchCluster{}
	if c.env, err = apitest.Launch(ctx); err != nil {
		return nil, err
	}
	if c.scraper, err = c.env.Scraper(ctx); err != nil {
		return nil, errors.Join(err, c.stop(context.WithoutCancel(ctx)))
	}
	if err := errors.Join(c.createObjects(ctx, o.pods), c.startDaemon(ctx, o)); err != nil {
		return nil, errors.Join(err, c.stop(context.WithoutCancel(ctx)))
	}
	return c, nil
}

// createObjects creates the node, its Pods and their network.
func (c *benchCluster) createObjects(ctx context.Context, pods int) error {
	if err := errors.Join(
		c.env.Client.Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName}}),
		c.env.Client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: podNamespace}}),
		c.env.Client.Create(ctx, &v1.ClusterNetwork{
			ObjectMeta: metav1.ObjectMeta{Name: networkName},
			Spec: v1.NetworkSpec{NetworkID: networkName, NetworkType: v1.TypeMACVLAN, Options: v1.NetworkOptions{
				Device: parentLink, CIDR: "10.92.0.0/16",
				ConflictProbe: new(false), // the peers do not probe either
			}},
		}),
	); err != nil {
		return fmt.Errorf("create objects: %w", err)
	}
	for i := range pods {
		p := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: podNamespace, Name: "pod-" + strconv.Itoa(i), Annotations: map[string]string{
				v1.InterfacesAnnotation: fmt.Sprintf(`[{"clusterNetwork":%q,"ip":"dynamic"}]`, networkName),
			}},
			Spec: corev1.PodSpec{NodeName: nodeName, Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		}
		if err := c.env.Client.Create(ctx, p); err != nil {
			return fmt.Errorf("create Pod: %w", err)
		}
		c.pods = append(c.pods, pod{p.Name, string(p.UID)})
	}
	return nil
}

// startDaemon starts the daemon with the rights that deployments/ gives it.
func (c *benchCluster) startDaemon(ctx context.Context, o options) error {
	in := func(name string) string { return filepath.Join(o.dir, "cluster", name) }
	if err := os.MkdirAll(in(""), 0o700); err != nil {
		return fmt.Errorf("create folder: %w", err)
	}
	config, err := clientcmd.LoadFromFile(c.env.ControlPlane.AdminKubeconfig())
	if err != nil {
		return fmt.Errorf("read kubeconfig: %w", err)
	}
	who := apitest.NodeDaemon(nodeName)
	for _, user := range config.AuthInfos {
		user.Impersonate, user.ImpersonateGroups, user.ImpersonateUserExtra = who.UserName, who.Groups, who.Extra
	}
	if err := clientcmd.WriteToFile(*config, in("kubeconfig")); err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	c.daemon = exec.CommandContext(ctx, o.daemon, "--node-name="+nodeName, "--kubeconfig="+in("kubeconfig"),
		"--namespace=patchbay-system", "--socket="+clusterSocket(o.dir), "--pending-del-dir="+in("pending"),
		"--journal="+in("journal.db"), "--install=false", "--health-address="+daemonHTTP, "--metrics-address="+daemonMetrics)
	c.daemon.Cancel = func() error { return c.daemon.Process.Signal(syscall.SIGTERM) }
	if err := c.daemon.Start(); err != nil {
		return fmt.Errorf("start %s: %w", o.daemon, err)
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		err := checkReady(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("await daemon: %w (last: %w)", ctx.Err(), err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// errNotReady means that the daemon cannot attach Pods yet.
var errNotReady = errors.New("the daemon is not ready")

// checkReady returns an error until the daemon is ready.
func checkReady(ctx context.Context) error {
	body, status, err := get(ctx, "/readyz")
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("%w: %s", errNotReady, body)
	}
	return err
}

// get sends a request to the daemon's HTTP server.
func get(ctx context.Context, path string) (body []byte, status int, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+daemonHTTP+path, nil)
	if err != nil {
		return nil, 0, fmt.Errorf("get %s: %w", path, err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, 0, fmt.Errorf("get %s: %w", path, err)
	}
	defer func() { err = errors.Join(err, res.Body.Close()) }()
	body, err = io.ReadAll(res.Body)
	return body, res.StatusCode, err
}

// stop stops the daemon and the API server.
func (c *benchCluster) stop(ctx context.Context) error {
	var errs []error
	if c.daemon != nil && c.daemon.Process != nil {
		errs = append(errs, c.daemon.Process.Signal(syscall.SIGTERM), c.daemon.Wait())
	}
	return errors.Join(append(errs, c.env.Close(ctx))...)
}
