// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/patchbay-cni/patchbay/test/lab/controlplane"
	"github.com/patchbay-cni/patchbay/test/lab/guest"
	"github.com/patchbay-cni/patchbay/test/lab/netns"
	"github.com/patchbay-cni/patchbay/test/lab/node"
	"github.com/patchbay-cni/patchbay/test/lab/remote"
)

// ErrNoAdmission says that the API server could not ask patchbay-controller.
var ErrNoAdmission = errors.New("admission does not answer")

// ErrNoPart says that there is nothing of that name to restart.
var ErrNoPart = errors.New("no such part")

// KubectlCommand is kubectl as the cluster's administrator.
func (l *Lab) KubectlCommand(ctx context.Context, args ...string) (*exec.Cmd, error) {
	return l.Command(ctx, filepath.Join(l.config.Bin, "kubernetes", "kubectl"), args...)
}

// Command is a program of this machine in the lab's network namespace, where the API server's and the
// nodes' addresses are. It sees the caller's files. The kubectl in its PATH is the cluster's administrator,
// and finds its plugins there.
func (l *Lab) Command(ctx context.Context, program string, args ...string) (*exec.Cmd, error) {
	plane, err := l.plane()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, "nsenter", append([]string{"--net=" + netns.Path(l.Netns()), "--", program}, args...)...)
	path := []string{l.config.Bin, filepath.Join(l.config.Bin, "kubernetes"), os.Getenv("PATH")}
	cmd.Env = append(os.Environ(), "KUBECONFIG="+plane.AdminKubeconfig(), "PATH="+strings.Join(path, ":"))
	return cmd, nil
}

// Kubectl runs kubectl and returns its standard output; the error has the other one.
func (l *Lab) Kubectl(ctx context.Context, args ...string) (string, error) {
	return l.KubectlInput(ctx, "", args...)
}

// KubectlInput is Kubectl with an input, for "apply -f -".
func (l *Lab) KubectlInput(ctx context.Context, input string, args ...string) (string, error) {
	cmd, err := l.KubectlCommand(ctx, args...)
	if err != nil {
		return "", err
	}
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return string(out), fmt.Errorf("run kubectl %s: %w: %s", strings.Join(args, " "), err, exit.Stderr)
	}
	if err != nil {
		return "", fmt.Errorf("run kubectl %s: %w", strings.Join(args, " "), err)
	}
	return string(out), nil
}

// RESTConfig is the administrator's client configuration; it works from outside the
// lab's namespace.
func (l *Lab) RESTConfig() (*rest.Config, error) {
	plane, err := l.plane()
	if err != nil {
		return nil, err
	}
	return plane.RESTConfig(), nil
}

func (l *Lab) client() (kubernetes.Interface, error) {
	config, err := l.RESTConfig()
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	return client, nil
}

// Examples returns a folder of examples/ of the module that the lab was built from.
func (l *Lab) Examples(name string) string { return l.config.source("examples", name) }

// Names in deployments/.
const (
	productNamespace = "patchbay-system"
	productDaemon    = "patchbayd"
	productManager   = "patchbay-controller"
	productLabel     = "app.kubernetes.io/part-of=patchbay"
	nameLabel        = "app.kubernetes.io/name="
	workloads        = "daemonset,deployment"
)

// overlay is what an administrator would write to install Patchbay: the manifests of
// deployments/, plus a mark on the Pods that changes with the images, and the nodes that run
// patchbay-controller. The images' tags stay the same from build to build, so nothing else would roll a
// new one out. The patches' own kinds and names mean nothing: the targets choose what they are for.
const overlay = `resources: [%s]
patches:
  - target: {kind: DaemonSet|Deployment, labelSelector: ` + productLabel + `}
    patch: |
      {apiVersion: apps/v1, kind: Any, metadata: {name: any}, spec: {template: {metadata: {annotations: {patchbay.local/images: %q}}}}}
  - target: {kind: Deployment, labelSelector: ` + productLabel + `}
    patch: |
      {apiVersion: apps/v1, kind: Any, metadata: {name: any}, spec: {replicas: %d, template: {spec: {affinity: {nodeAffinity: {
        requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [
          {key: ` + kindLabel + `, operator: In, values: [%s]}]}]}}}}}}}
`

// Install applies deployments/ of the module that the lab was built from and waits
// until its daemon is ready on every node and its controller answers the API server.
func (l *Lab) Install(ctx context.Context) error {
	dir := l.config.path("install")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make folder: %w", err)
	}
	base, err := filepath.Rel(dir, l.config.source("deployments"))
	if err != nil {
		return fmt.Errorf("find deployments: %w", err)
	}
	sum, err := l.imagesSum()
	if err != nil {
		return err
	}
	hosts, kind, err := l.controllerNodes()
	if err != nil {
		return err
	}
	// Two replicas do not run on one node, since they have the same ports.
	const replicas = 2
	kustomization := fmt.Appendf(nil, overlay, base, sum, min(replicas, len(hosts)), kind)
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), kustomization, 0o644); err != nil {
		return fmt.Errorf("write kustomization: %w", err)
	}
	// What a test changed for a while, and did not take back, is no reason to stop.
	if _, err := l.Kubectl(ctx, "apply", "--server-side", "--force-conflicts", "--kustomize", dir); err != nil {
		return err
	}
	return l.awaitRollout(ctx, productLabel)
}

// controllerNodes are the nodes that run patchbay-controller, all of one kind: KindUML if the lab has such
// nodes. A processor that QEMU simulates takes a minute to import the image.
func (l *Lab) controllerNodes() ([]string, Kind, error) {
	nodes, err := l.Nodes()
	if err != nil {
		return nil, "", err
	}
	fast, err := l.config.ofKind(KindUML, nodes)
	if err != nil || len(fast) > 0 {
		return fast, KindUML, err
	}
	return nodes, KindQEMU, nil
}

// imagesSum changes with the archives in bin/images.
func (l *Lab) imagesSum() (string, error) {
	files, err := l.config.builtImages()
	if err != nil {
		return "", err
	}
	h := sha256.New()
	for _, file := range files {
		f, err := os.Open(file)
		if err != nil {
			return "", fmt.Errorf("read image: %w", err)
		}
		_, err = io.Copy(h, f)
		_ = f.Close()
		if err != nil {
			return "", fmt.Errorf("read image: %w", err)
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:8]), nil
}

// Import gives all nodes that are on images of other builds than those of bin/images, and returns when the nodes have
// them. A node that boots later has only those of bin/images.
func (l *Lab) Import(ctx context.Context, archives ...string) error {
	return l.importOnNodes(ctx, func(node.Config) []string { return archives })
}

// importAll gives all nodes that are on the images that they lack.
func (l *Lab) importAll(ctx context.Context) error {
	return l.importOnNodes(ctx, func(c node.Config) []string { return c.Images })
}

// importOnNodes gives each node that is on its archives.
func (l *Lab) importOnNodes(ctx context.Context, archives func(node.Config) []string) error {
	nodes, err := l.Nodes()
	if err != nil {
		return err
	}
	group, importing := errgroup.WithContext(ctx)
	for _, name := range nodes {
		group.Go(func() error {
			c, err := l.nodeConfig(name)
			if err != nil || !node.IsOn(c.Dir) {
				return err
			}
			return c.Import(importing, archives(c)...)
		})
	}
	return group.Wait()
}

// awaitRollout waits for all programs of the product that have the label, and for
// admission.
func (l *Lab) awaitRollout(ctx context.Context, label string) error {
	_, err := l.Kubectl(ctx, "rollout", "status", "--namespace", productNamespace, workloads, "--selector", label, "--timeout=480s")
	if err != nil {
		return err
	}
	return l.awaitAdmission(ctx)
}

// probeNetwork is a network that nobody gets: it is created as a dry run.
const probeNetwork = `{"apiVersion": "danm.io/v1", "kind": "ClusterNetwork", "metadata": {"name": "lab-probe"}, "spec": {"NetworkID": "probe", "NetworkType": "bridge"}}`

// awaitAdmission returns when a network could be created. The API server hears some
// time after the rollout whom to ask.
func (l *Lab) awaitAdmission(ctx context.Context) error {
	const patience, pause = 4 * time.Minute, 200 * time.Millisecond
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	client, err := l.client()
	if err != nil {
		return err
	}
	for {
		err := client.CoreV1().RESTClient().Post().AbsPath("/apis/danm.io/v1/clusternetworks").Param("dryRun", "All").
			SetHeader("Content-Type", "application/json").Body([]byte(probeNetwork)).Do(ctx).Error()
		if err == nil || apierrors.IsAlreadyExists(err) {
			return nil
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return fmt.Errorf("create a network as a dry run: %w: %w", ErrNoAdmission, err)
		}
	}
}

// Restart ends a part and starts it again: a program of the control plane, patchbayd on
// all nodes or patchbay-controller, with the images that were built last, or
// NODE/SERVICE for containerd and kubelet of a node. It returns when the part is ready; services of nodes come back by
// themselves.
func (l *Lab) Restart(ctx context.Context, part string) error {
	if name, service, ok := strings.Cut(part, "/"); ok {
		return l.restartService(ctx, name, service)
	}
	if part == productDaemon || part == productManager {
		return l.restartProduct(ctx, part)
	}
	plane, err := l.plane()
	if err != nil {
		return err
	}
	if !slices.Contains(plane.Parts(), controlplane.Part(part)) {
		return fmt.Errorf("restart %s: %w: want one of %v, patchbayd, patchbay-controller, NODE/containerd, NODE/kubelet", part, ErrNoPart, plane.Parts())
	}
	return plane.Restart(ctx, controlplane.Part(part))
}

// restartProduct brings images that were built meanwhile to the nodes, and the program
// of that name to life again.
func (l *Lab) restartProduct(ctx context.Context, name string) error {
	if err := l.importAll(ctx); err != nil {
		return err
	}
	label := nameLabel + name
	if _, err := l.Kubectl(ctx, "rollout", "restart", "--namespace", productNamespace, workloads, "--selector", label); err != nil {
		return err
	}
	return l.awaitRollout(ctx, label)
}

func (l *Lab) restartService(ctx context.Context, name, service string) error {
	if service != "containerd" && service != "kubelet" {
		return fmt.Errorf("restart %s of %s: %w: want containerd or kubelet", service, name, ErrNoPart)
	}
	_, err := l.Exec(ctx, name, "sh", "-ec", `kill "$(cat "$0")"`, guest.ServiceDir+"/"+service+".pid")
	return err
}

// StopPart ends a program of the control plane politely; what it served is refused
// until StartPart. One that does not run is fine.
func (l *Lab) StopPart(ctx context.Context, part string) error {
	plane, err := l.plane()
	if err != nil {
		return err
	}
	return plane.StopPart(ctx, controlplane.Part(part))
}

// StartPart starts a program of the control plane that does not run, and waits until
// it is ready.
func (l *Lab) StartPart(ctx context.Context, part string) error {
	plane, err := l.plane()
	if err != nil {
		return err
	}
	return plane.StartPart(ctx, controlplane.Part(part))
}

// Logs collects all that tells what happened in the folder dir: logs of the control
// plane, of the nodes and of all containers, the cluster's objects, and the network
// state of each node's kernel. It collects what it can; the error names the rest.
func (l *Lab) Logs(ctx context.Context, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make folder for logs: %w", err)
	}
	errs := []error{
		copyMatching(filepath.Join(l.config.path(planeDir), "*.log"), filepath.Join(dir, planeDir)),
		l.clusterState(ctx, filepath.Join(dir, "cluster")),
	}
	nodes, err := l.Nodes()
	errs = append(errs, err)
	for _, name := range nodes {
		errs = append(errs, l.nodeLogs(ctx, name, filepath.Join(dir, name)))
	}
	return errors.Join(errs...)
}

// Restarts has a line for each container of Patchbay that was restarted, with the reason
// of the last time. A test that waits for Patchbay in vain often has its cause there.
func (l *Lab) Restarts(ctx context.Context) (string, error) {
	const patience = time.Minute
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	out, err := l.Kubectl(ctx, "get", "pods", "--namespace", productNamespace, "-o", "json")
	if err != nil {
		return "", err
	}
	var pods corev1.PodList
	if err := json.Unmarshal([]byte(out), &pods); err != nil {
		return "", fmt.Errorf("decode Pods: %w", err)
	}
	var lines strings.Builder
	for _, p := range pods.Items {
		for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
			if s.RestartCount == 0 {
				continue
			}
			fmt.Fprintf(&lines, "%s on %s: container %s was restarted %d times; %s\n", p.Name, p.Spec.NodeName,
				s.Name, s.RestartCount, describeExit(s.LastTerminationState.Terminated, l.lastLog(ctx, p, s.Name)))
		}
	}
	return lines.String(), nil
}

// lastLog is the log of the container before, or of this one: in a crash loop kubelet may
// have removed the former by now. The restarts are worth a line without it.
func (l *Lab) lastLog(ctx context.Context, p corev1.Pod, container string) string {
	const removed = "unable to retrieve container logs" // kubelet's answer, which is no error
	for _, previous := range []string{"--previous=true", "--previous=false"} {
		log, err := l.Kubectl(ctx, "logs", "--namespace", p.Namespace, p.Name, "--container", container, previous)
		if err == nil && log != "" && !strings.HasPrefix(log, removed) {
			return log
		}
	}
	return ""
}

// describeExit describes how a container ended, by its log if that is of any use.
func describeExit(state *corev1.ContainerStateTerminated, log string) string {
	end := "how it ended is not known"
	if state != nil {
		end = fmt.Sprintf("the last time with exit code %d (%s)", state.ExitCode, state.Reason)
	}
	last := ""
	for line := range strings.Lines(log) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		last = line
		if strings.HasPrefix(line, "fatal error: ") || strings.HasPrefix(line, "panic: ") {
			break // below are the goroutines
		}
	}
	if last == "" {
		return end
	}
	return end + ": " + last
}

// clusterState writes down the objects that matter, as a person would look at them.
func (l *Lab) clusterState(ctx context.Context, dir string) error {
	const patience = time.Minute // the API server may be what is broken
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var errs []error
	for file, args := range map[string][]string{
		"overview.txt": {"get", "nodes,pods,daemonsets,deployments", "-A", "-o", "wide"},
		"events.txt":   {"get", "events", "-A", "--sort-by=.lastTimestamp", "-o", "wide"},
		"pods.txt":     {"describe", "pods", "-A"},
		"nodes.yaml":   {"get", "nodes", "-o", "yaml"},
	} {
		out, err := l.Kubectl(ctx, args...)
		errs = append(errs, err, writeLog(filepath.Join(dir, file), out))
	}
	// Without Patchbay there are none, and that is fine.
	danm, err := l.Kubectl(ctx, "api-resources", "--api-group=danm.io", "--verbs=list", "-o", "name")
	errs = append(errs, err)
	for resource := range strings.FieldsSeq(danm) {
		out, err := l.Kubectl(ctx, "get", resource, "-A", "-o", "yaml")
		errs = append(errs, err, writeLog(filepath.Join(dir, resource+".yaml"), out))
	}
	return errors.Join(errs...)
}

// nodeLogs also asks a node that runs; its own files are there in any case.
func (l *Lab) nodeLogs(ctx context.Context, name, dir string) error {
	c, err := l.existingNode(name)
	if err != nil {
		return err
	}
	errs := []error{copyMatching(filepath.Join(c.Dir, "*.log"), dir)}
	if !node.IsOn(c.Dir) {
		return errors.Join(errs...)
	}
	const patience = time.Minute
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for file, script := range map[string]string{
		"network.txt": `ip -d link; ip address; ip route show table all; ip rule; ip neigh; bridge fdb
			for ns in /run/netns/*; do echo "=== $ns"; nsenter --net="$ns" sh -c "ip -d address; ip route; ip -6 route"; done`,
		"kernel.txt":     "dmesg",
		"processes.txt":  "ps -eo pid,ppid,stat,etime,rss,args; free -m; cat /proc/loadavg; df -h",
		"containers.txt": `for f in /var/log/pods/*/*/*.log; do echo "=== $f"; cat "$f"; done`,
		"cni.txt":        `ls -laR /etc/cni /opt/cni /run/patchbay /var/lib/patchbay /var/lib/cni; grep -r . /etc/cni`,
	} {
		var out strings.Builder
		_, err := c.Run(ctx, remote.Request{Args: []string{"sh", "-c", script}}, remote.Streams{Out: &out, Err: &out})
		errs = append(errs, err, writeLog(filepath.Join(dir, file), out.String()))
	}
	return errors.Join(errs...)
}

func copyMatching(pattern, dir string) error {
	files, err := filepath.Glob(pattern)
	errs := []error{err}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		errs = append(errs, err, writeLog(filepath.Join(dir, filepath.Base(file)), string(raw)))
	}
	return errors.Join(errs...)
}

func writeLog(file, content string) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return fmt.Errorf("make folder for logs: %w", err)
	}
	if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
		return fmt.Errorf("write log: %w", err)
	}
	return nil
}
