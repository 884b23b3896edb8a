// SPDX-License-Identifier: Apache-2.0

//go:build sriovlab

package sriov

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-cni/patchbay/test/lab"
	"github.com/patchbay-cni/patchbay/test/lab/process"
)

const (
	// plain is a node of User-Mode Linux, fast one with functions.
	plain, fast = "node-1", "node-2"
	// waitTimeout bounds each wait of a test. QEMU simulates the processor.
	waitTimeout = 10 * time.Minute
)

// shared is the lab of all tests. TestMain has no other way to hand it to them.
var shared *lab.Lab

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) (code int) {
	ctx, stop := lab.EndOnInterrupt()
	defer stop()
	// LAB names a lab that is up and stays, for a tight loop while developing.
	name, kept := os.LookupEnv("LAB")
	if !kept {
		name = fmt.Sprintf("sriov-%d", os.Getpid())
	}
	config := lab.Config{Name: name, Nodes: 2, QEMU: []string{fast}, Install: true, Progress: os.Stderr}
	if !kept {
		// What a killed run leaves is found, and removed, by the next one's tests.
		config.Owner, _ = process.Of(os.Getpid())
	}
	starting, cancel := context.WithTimeout(ctx, 2*waitTimeout)
	defer cancel()
	var err error
	shared, err = lab.Up(starting, config)
	defer func() {
		if kept {
			return
		}
		if err := lab.Down(context.WithoutCancel(ctx), name); err != nil {
			fmt.Fprintf(os.Stderr, "end lab %s: %v\n", name, err)
			code = max(code, 1)
		}
	}()
	if err == nil {
		err = errors.Join(startDevicePlugin(starting), apply(starting, networks))
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "start lab %s: %v\n", name, err)
		collect(ctx)
		return 1
	}
	if code = m.Run(); code != 0 {
		collect(ctx)
	}
	return code
}

// collect puts all logs of the lab into one folder, and prints its path.
func collect(ctx context.Context) {
	if shared == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), waitTimeout)
	defer cancel()
	dir, err := os.MkdirTemp("", shared.Name()+"-logs-")
	if err == nil {
		err = shared.Logs(ctx, dir)
	}
	fmt.Fprintf(os.Stderr, "the lab's logs are in %s (error: %v)\n", dir, err)
}

// startDevicePlugin starts the device plugin on the node, with a pool for each physical function, and waits
// until it has registered both. It outlives the shell in a session of its own.
func startDevicePlugin(ctx context.Context) error {
	program, err := filepath.Abs("../../bin/deviceplugin")
	if err != nil {
		return err
	}
	const script = `[ ! -e /run/deviceplugin.pid ] || kill "$(cat /run/deviceplugin.pid)" # of an earlier run in a lab that stays
		setsid "$0" -resource example.com/sriov_ens4=ens4 -resource example.com/sriov_ens5=ens5 </dev/null >/run/deviceplugin.log 2>&1 &
		echo $! >/run/deviceplugin.pid
		until [ "$(grep -c Registered /run/deviceplugin.log)" = 2 ]; do
			kill -0 $! || { cat /run/deviceplugin.log; exit 1; }
			sleep 1
		done`
	out, err := shared.Exec(ctx, fast, "sh", "-c", script, program)
	if err != nil {
		return fmt.Errorf("start device plugin: %w: %s", err, out)
	}
	return nil
}

// networks are those of all tests: first and second are DANM's device_plugin_demo, and wire reaches the
// functions of first from nodes without functions.
const networks = `
apiVersion: danm.io/v1
kind: ClusterNetwork
metadata: {name: default}
spec: {NetworkID: pods, NetworkType: bridge}
---
apiVersion: danm.io/v1
kind: ClusterNetwork
metadata: {name: first}
spec:
  NetworkID: first
  NetworkType: sriov
  Options:
    device_pool: example.com/sriov_ens4
    vlan: 500
    container_prefix: first_path
    cidr: 10.50.0.0/24
    allocation_pool: {start: 10.50.0.10, end: 10.50.0.99}
---
apiVersion: danm.io/v1
kind: ClusterNetwork
metadata: {name: second}
spec:
  NetworkID: second
  NetworkType: sriov
  Options:
    device_pool: example.com/sriov_ens5
    vlan: 501
    container_prefix: second_path
    cidr: 10.51.0.0/24
---
apiVersion: danm.io/v1
kind: ClusterNetwork
metadata: {name: wire}
spec:
  NetworkID: wire
  NetworkType: macvlan
  Options:
    host_device: ens4
    vlan: 500
    cidr: 10.50.0.0/24
    allocation_pool: {start: 10.50.0.100, end: 10.50.0.199}
`

func apply(ctx context.Context, manifest string) error {
	out, err := shared.KubectlInput(ctx, manifest, "apply", "-f", "-")
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// pod is a Pod with interfaces of these networks, and the functions that they need.
type pod struct {
	name string
	// networks are names of ClusterNetworks. Few Pods have "default": a plugin attaches it, and QEMU takes
	// seconds to start one.
	networks []string
	// node, unless it is empty, is where the Pod runs.
	node string
	// noRequest leaves it to the webhook to request the functions.
	noRequest bool
}

// pools are the device pools of the networks.
var pools = map[string]string{"first": "example.com/sriov_ens4", "second": "example.com/sriov_ens5"}

func (p pod) manifest() string {
	var interfaces []string
	limits := map[string]int{}
	for _, n := range p.networks {
		request := fmt.Sprintf(`{"clusterNetwork": %q, "ip": "dynamic"}`, n)
		if n == "default" {
			request = `{"clusterNetwork": "default"}`
		}
		interfaces = append(interfaces, request)
		if pool := pools[n]; pool != "" && !p.noRequest {
			limits[pool]++
		}
	}
	var resources []string
	for pool, number := range limits {
		resources = append(resources, fmt.Sprintf("%s: %d", pool, number))
	}
	return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata:
  name: %s
  annotations:
    danm.io/interfaces: '[%s]'
spec:
  nodeName: %q
  restartPolicy: Always
  terminationGracePeriodSeconds: 0
  automountServiceAccountToken: false
  containers:
    - name: main
      image: patchbay.local/busybox:lab
      imagePullPolicy: Never
      command: [sleep, infinity]
      resources: {limits: {%s}}
`, p.name, strings.Join(interfaces, ", "), p.node, strings.Join(resources, ", "))
}

// create creates Pods at once. They are deleted when the test ends.
func create(t *testing.T, pods ...pod) {
	t.Helper()
	var all strings.Builder
	for _, p := range pods {
		all.WriteString("---" + p.manifest())
	}
	t.Cleanup(func() { remove(t, pods...) })
	// Admission is away for a moment after the node that it runs on was restarted.
	await(t, "the Pods are created", func(ctx context.Context) string { return text(apply(ctx, all.String())) })
}

// remove deletes Pods and waits until they are gone.
func remove(t *testing.T, pods ...pod) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), waitTimeout)
	defer cancel()
	args := []string{"delete", "pod", "--ignore-not-found", "--wait"}
	for _, p := range pods {
		args = append(args, p.name)
	}
	if out, err := shared.Kubectl(ctx, args...); err != nil {
		t.Errorf("delete Pods: %v: %s", err, out)
	}
}

// awaitRunning waits until the Pods run. One kubectl watches, since each start of it takes the guests' time.
func awaitRunning(t *testing.T, pods ...pod) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
	defer cancel()
	args := []string{"wait", "--for=jsonpath={.status.phase}=Running", "--timeout", waitTimeout.String(), "pod"}
	for _, p := range pods {
		args = append(args, p.name)
	}
	if _, err := shared.Kubectl(ctx, args...); err != nil {
		events, _ := shared.Kubectl(t.Context(), "get", "events", "--sort-by=.lastTimestamp")
		t.Fatalf("wait until the Pods run: %v\n%s", err, events)
	}
}

// awaitEvent waits for an Event on the Pod with the reason and a part of its message.
func (p pod) awaitEvent(t *testing.T, reason, part string) {
	t.Helper()
	await(t, "Pod "+p.name+" has the Event "+reason, func(ctx context.Context) string {
		out, err := p.events(ctx, reason)
		if err == nil && strings.Contains(out, part) {
			return ""
		}
		return fmt.Sprintf("%s %v", out, err)
	})
}

// events returns the messages of the Pod's Events with the reason.
func (p pod) events(ctx context.Context, reason string) (string, error) {
	return shared.Kubectl(ctx, "get", "events", "--field-selector", "involvedObject.name="+p.name+",reason="+reason, "-o", "jsonpath={.items[*].message}")
}

// exec runs a command in the Pod.
func (p pod) exec(t *testing.T, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
	defer cancel()
	out, err := shared.Kubectl(ctx, append([]string{"exec", p.name, "--"}, args...)...)
	if err != nil {
		t.Fatalf("Pod %s: %s: %v: %s", p.name, strings.Join(args, " "), err, out)
	}
	return out
}

// onNode runs a shell command on the node with functions.
func onNode(t *testing.T, script string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
	defer cancel()
	out, err := shared.Exec(ctx, fast, "sh", "-c", script)
	if err != nil {
		t.Fatalf("%s: %v: %s", script, err, out)
	}
	return out
}

// await polls until check returns "", or fails the test with what it returned last.
func await(t *testing.T, what string, check func(context.Context) string) {
	t.Helper()
	const pause = 2 * time.Second // a program that a check starts on the node takes as long as an answer
	ctx, cancel := context.WithTimeout(context.Background(), waitTimeout)
	defer cancel()
	for last := ""; ; {
		now := check(ctx)
		if now == "" {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("waited %v until %s: %s", waitTimeout, what, last)
		}
		last = now
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
