// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package firstinstall

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-cni/patchbay/test/lab"
	"github.com/patchbay-cni/patchbay/test/source"
)

// waitTimeout is for anything that takes seconds on an idle machine.
const waitTimeout = 10 * time.Minute

func TestMain(m *testing.M) {
	_, stop := lab.EndOnInterrupt()
	code := m.Run()
	stop()
	os.Exit(code)
}

// cluster is a lab of one node that has another CNI plugin.
type cluster struct {
	*testing.T

	lab *lab.Lab
}

// run runs kubectl, and returns its output.
func (c *cluster) run(args ...string) string {
	c.Helper()
	out, err := c.lab.Kubectl(c.Context(), args...)
	if err != nil {
		c.Fatal(err)
	}
	return strings.TrimSpace(out)
}

// eventually polls until kubectl prints a text.
func (c *cluster) eventually(what, want string, args ...string) {
	c.Helper()
	c.poll(what, func(ctx context.Context) error {
		out, err := c.lab.Kubectl(ctx, args...)
		if err == nil && !strings.Contains(out, want) {
			err = fmt.Errorf("got %q, want %q", out, want)
		}
		return err
	})
}

// poll calls check until it returns no error.
func (c *cluster) poll(what string, check func(ctx context.Context) error) {
	c.Helper()
	const pause = 500 * time.Millisecond
	ctx, cancel := context.WithTimeout(c.Context(), waitTimeout)
	defer cancel()
	for {
		err := check(ctx)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			c.Fatalf("waited %v for %s: %v", waitTimeout, what, err)
		case <-time.After(pause):
		}
	}
}

// pod is an ordinary Pod without an annotation, with its name.
const pod = `{apiVersion: v1, kind: Pod, metadata: {name: %s}, spec: {terminationGracePeriodSeconds: 0, containers: [
  {name: main, image: "patchbay.local/busybox:lab", imagePullPolicy: Never, command: [sleep, infinity]}]}}`

// dns is a Deployment like CoreDNS's: without an annotation, in kube-system.
const dns = `{apiVersion: apps/v1, kind: Deployment, metadata: {name: dns, namespace: kube-system}, spec: {
  selector: {matchLabels: {app: dns}}, template: {metadata: {labels: {app: dns}}, spec: {
    terminationGracePeriodSeconds: 0, tolerations: [{operator: Exists}], containers: [
      {name: main, image: "patchbay.local/busybox:lab", imagePullPolicy: Never, command: [sleep, infinity]}]}}}}`

// defaultNetwork makes the other plugin's configuration the network default.
const defaultNetwork = `{apiVersion: danm.io/v1, kind: ClusterNetwork, metadata: {name: default}, spec: {NetworkID: pods, NetworkType: bridge}}`

// create creates an object.
func (c *cluster) create(manifest string) {
	c.Helper()
	if _, err := c.lab.KubectlInput(c.Context(), manifest, "create", "-f", "-"); err != nil {
		c.Fatal(err)
	}
}

// startPod creates an ordinary Pod, and waits until it is ready.
func (c *cluster) startPod(name string) {
	c.Helper()
	c.create(fmt.Sprintf(pod, name))
	c.run("wait", "--for=condition=Ready", "--timeout="+waitTimeout.String(), "pod/"+name)
}

// networks returns the networks of the DanmEps of a Pod.
func (c *cluster) networks(name string) []string {
	c.Helper()
	return []string{
		"get", "danmeps", "-o", `jsonpath={range .items[?(@.spec.Pod=="` + name + `")]}{.spec.NetworkName}{end}`,
	}
}

// checkRelease deletes a Pod, and waits until the other plugin has released its address.
func (c *cluster) checkRelease(name string) {
	c.Helper()
	address := c.run("get", "pod", name, "-o", "jsonpath={.status.podIP}")
	allocated := func(ctx context.Context) (bool, error) {
		out, err := c.lab.Exec(ctx, "node-1", "sh", "-c", "ls /var/lib/cni/networks/*/")
		return slices.Contains(strings.Fields(out), address), err
	}
	if found, err := allocated(c.Context()); err != nil || !found {
		c.Fatalf("the other plugin has not allocated address %q of Pod %s: error %v", address, name, err)
	}
	c.run("delete", "pod", name, "--timeout="+waitTimeout.String())
	c.poll("the other plugin to release address "+address, func(ctx context.Context) error {
		if found, err := allocated(ctx); err != nil || found {
			return fmt.Errorf("allocated: %t, error %w", found, err)
		}
		return nil
	})
}

// Next to another CNI plugin, and without any network named default, the Pods of the cluster start as
// before. The other plugin detaches the Pods that it attached. A network default takes over for new Pods. When a CustomResourceDefinition is deleted, the
// programs are not ready, ordinary Pods start nevertheless, and all recovers when it is applied again. In the end, a flag
// names the file that ordinary Pods get.
func TestInstallNextToAnotherPlugin(t *testing.T) {
	c := &cluster{T: t, lab: lab.Start(t, lab.Config{Nodes: 1})}
	c.create(dns)
	c.startPod("before")
	if err := c.lab.Install(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.eventually("the node's report", "pods.conflist", "get", "nodenetworks", "-o", "jsonpath={.items[*].status.nodeConfiguration.file}")
	c.checkRelease("before")
	c.run("delete", "pod", "-n", "kube-system", "-l", "app=dns")
	c.run("rollout", "status", "-n", "kube-system", "deployment/dns", "--timeout="+waitTimeout.String())
	c.startPod("after")
	if got := c.run(c.networks("after")...); got != "" {
		t.Errorf("a Pod without a network has a DanmEp of %q, want none", got)
	}

	c.create(defaultNetwork)
	c.startPod("late")
	c.eventually("the DanmEp of a Pod on the network default", "default", c.networks("late")...)
	c.run("delete", "pod", "after", "--timeout="+waitTimeout.String())

	c.run("delete", "crd", "clusternetworks.danm.io", "--wait=false")
	c.eventually("the daemon not to be ready", "ready=0.", "get", "-n", "patchbay-system", "daemonset/patchbayd", "-o", "jsonpath=ready={.status.numberReady}.")
	c.eventually("the controller not to be ready", "ready=.", "get", "-n", "patchbay-system", "deployment/patchbay-controller", "-o", "jsonpath=ready={.status.readyReplicas}.")
	c.eventually("the daemon's log", "ClusterNetwork of danm.io/v1 must not be in deletion", "logs", "-n", "patchbay-system", "daemonset/patchbayd")
	c.startPod("meanwhile")
	c.run("delete", "pod", "late", "--timeout="+waitTimeout.String())
	c.run("wait", "--for=delete", "--timeout="+waitTimeout.String(), "crd/clusternetworks.danm.io")
	c.startPod("without-kind")

	definitions, err := source.Path("deployments", "crds")
	if err != nil {
		t.Fatal(err)
	}
	c.run("apply", "--server-side", "--kustomize", definitions)
	c.run("rollout", "status", "-n", "patchbay-system", "daemonset,deployment", "--selector", "app.kubernetes.io/part-of=patchbay", "--timeout="+waitTimeout.String())
	c.startPod("again")
	c.checkDefaultDelegate()
}

// checkDefaultDelegate names the file of Pods without an annotation in the daemon's flag. With a file that the node does
// not have, the daemon is not ready, and ordinary Pods do not get another network. With the other plugin's, they start,
// although the file that sorts before it is broken.
func (c *cluster) checkDefaultDelegate() {
	c.Helper()
	nameFile := func(file string) {
		c.Helper()
		c.run("patch", "-n", "patchbay-system", "daemonset/patchbayd", "--type=json", "-p",
			`[{"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": "--default-delegate=`+file+`"}]`)
	}
	if out, err := c.lab.Exec(c.Context(), "node-1", "sh", "-c", "echo '{' > /etc/cni/net.d/05-broken.conflist"); err != nil {
		c.Fatalf("write a broken configuration: %v\n%s", err, out)
	}
	nameFile("missing.conflist")
	const missing = "flag --default-delegate=missing.conflist of patchbayd: folder /etc/cni/net.d of this node must have the file"
	c.eventually("the daemon's log", missing, "logs", "-n", "patchbay-system", "daemonset/patchbayd")
	c.eventually("the daemon not to be ready", "ready=0.", "get", "-n", "patchbay-system", "daemonset/patchbayd", "-o", "jsonpath=ready={.status.numberReady}.")
	c.create(fmt.Sprintf(pod, "waiting"))
	c.eventually("the Pod's Events", missing, "get", "events", "--field-selector=involvedObject.name=waiting", "-o", "jsonpath={.items[*].message}")
	nameFile("pods.conflist")
	c.run("rollout", "status", "-n", "patchbay-system", "daemonset/patchbayd", "--timeout="+waitTimeout.String())
	c.run("wait", "--for=condition=Ready", "--timeout="+waitTimeout.String(), "pod/waiting")
	c.startPod("named")
	c.eventually("the node's report", "pods.conflist", "get", "nodenetworks", "-o", "jsonpath={.items[*].status.nodeConfiguration.file}")
}
