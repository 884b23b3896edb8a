// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/patchbay-cni/patchbay/test/lab/node"
	"github.com/patchbay-cni/patchbay/test/lab/remote"
)

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
				s.Name, s.RestartCount, lastEnd(s.LastTerminationState.Terminated, l.lastLog(ctx, p, s.Name)))
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

// lastEnd describes how a container ended, by its log if that is of any use.
func lastEnd(state *corev1.ContainerStateTerminated, log string) string {
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
	c, err := l.known(name)
	if err != nil {
		return err
	}
	errs := []error{copyMatching(filepath.Join(c.Dir, "*.log"), dir)}
	if !node.On(c.Dir) {
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
