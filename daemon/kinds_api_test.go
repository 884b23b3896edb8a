// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/ipamtest"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

// otherPlugin is a CNI plugin that records its command and configuration, and gives an address.
const otherPlugin = `#!/bin/sh
IFS= read -r in
echo "$CNI_COMMAND $in" >> RUNS
echo '{"cniVersion":"1.0.0","ips":[{"address":"10.9.0.2/24"}]}'
`

// A daemon on a node with another CNI plugin, without any network named default. It is not ready while a
// kind is missing or its definition in deletion, and does not install its configuration before the kinds
// are served. Pods without an annotation get the other plugin's configuration all the time, and it recovers
// by itself. A daemon that starts while a definition is in deletion completes the deletion.
func TestFirstInstallation(t *testing.T) {
	env := apitest.New(t) // its definitions are deleted
	n, ns := newNode(t, env), env.Namespace(t)
	n.writeOtherPlugin()
	env.Kubectl(t, "delete", "crd", "danmeps.danm.io", "clusternetworks.danm.io")
	stop := n.start()
	n.awaitNotReady("must serve the kinds ClusterNetwork, DanmEp of danm.io/v1", "deployments/crds")
	if _, err := os.Stat(n.path("conf/00-patchbay.conflist")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the daemon's configuration without its kinds: got error %v, want ErrNotExist", err)
	}
	env.InstallDefinitions(t)
	n.awaitReady()
	if _, err := os.Stat(n.path("conf/00-patchbay.conflist")); err != nil {
		t.Errorf("the daemon's configuration: %v", err)
	}
	n.awaitDefaultNetwork(v1.ReasonNodeConfigurationUsed)
	first := n.pod(ns, "[]")
	n.expectOtherPlugin(first, "all kinds are served")

	cn := n.network("10.40.0.0/24")
	attached := n.attach(ns, cn)
	stop()
	env.Kubectl(t, "delete", "crd", "danmeps.danm.io", "clusternetworks.danm.io", "--wait=false")
	n.start()
	n.awaitNotReady("ClusterNetwork, DanmEp", "must not be in deletion")
	n.expectOtherPlugin(n.pod(ns, "[]"), "a definition is in deletion")
	n.detachBeforeDeletion(attached, cn)
	n.awaitNotReady("must serve the kinds ClusterNetwork, DanmEp of")
	n.expectOtherPlugin(n.pod(ns, "[]"), "a kind is missing")
	if _, err := n.call("ADD", n.pod(ns, requestInterface(cn, "dynamic"))); err == nil || !strings.Contains(err.Error(), "does not serve the kind ClusterNetwork") {
		t.Errorf("a Pod on a network of a kind that is missing: got error %v", err)
	}

	env.InstallDefinitions(t)
	n.awaitReady()
	if err := env.Client.Create(t.Context(), defaultMACVLAN()); err != nil {
		t.Fatal(err)
	}
	// Only the watch of networks, which the API server has ended, triggers the report.
	n.awaitDefaultNetwork(v1.ReasonDefaultNetworkExists)
	late := n.pod(ns, "[]")
	if _, err := n.call("ADD", late); err != nil || late.eth0(t) != "10.41.0.1/24" {
		t.Errorf("a Pod after the network default was created: got error %v and address %s", err, late.eth0(t))
	}
	n.write("conf/10-other.conflist", []byte(`{"cniVersion":"1.0.0","name":"changed","plugins":[{"type":"gone"}]}`))
	if _, err := n.call("DEL", first); err != nil {
		t.Errorf("DEL of a Pod with the configuration before: %v", err)
	}
	runs, err := os.ReadFile(n.path("runs"))
	if err != nil || !strings.Contains(string(runs), "DEL ") || strings.Contains(string(runs), "changed") {
		t.Errorf("got error %v and executions, want a DEL with the configuration of the ADD:\n%s", err, runs)
	}
}

// A daemon whose flag names a CNI configuration that its node does not have. It is not ready, and does not install its
// own configuration, so that Pods start as before. With the file it recovers by itself, and Pods without an annotation
// get the file, whatever sorts before it. When the file vanishes later, they wait, and do not get another one.
func TestDefaultDelegate(t *testing.T) {
	env := apitest.Start(t)
	n, ns := newNode(t, env), env.Namespace(t)
	n.writeOtherPlugin()
	if err := os.Rename(n.path("conf/10-other.conflist"), n.path("conf/other.bak")); err != nil {
		t.Fatal(err)
	}
	n.write("conf/05-first.conflist", []byte(`{"cniVersion":"1.0.0","name":"first","plugins":[{"type":"gone"}]}`))
	n.args = append(n.args, "--default-delegate=10-other.conflist")
	n.start()
	n.awaitNotReady("flag --default-delegate=10-other.conflist of patchbayd", n.path("conf"), "install the CNI plugin that writes it, or name another file")
	n.awaitNoDefaultNetwork("flag --default-delegate=10-other.conflist of patchbayd")
	if _, err := os.Stat(n.path("conf/00-patchbay.conflist")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the daemon's configuration without the file: got error %v, want ErrNotExist", err)
	}

	if err := os.Rename(n.path("conf/other.bak"), n.path("conf/10-other.conflist")); err != nil {
		t.Fatal(err)
	}
	n.awaitReady()
	if _, err := os.Stat(n.path("conf/00-patchbay.conflist")); err != nil {
		t.Errorf("the daemon's configuration: %v", err)
	}
	n.expectOtherPlugin(n.pod(ns, "[]"), "another file sorts before the one of the flag")
	n.network("10.43.0.0/24") // a change of a network triggers the report
	n.awaitDefaultNetwork(v1.ReasonNodeConfigurationUsed)

	if err := os.Remove(n.path("conf/10-other.conflist")); err != nil {
		t.Fatal(err)
	}
	p := n.pod(ns, "[]")
	if _, err := n.call("ADD", p); err == nil || !strings.Contains(err.Error(), "flag --default-delegate=10-other.conflist of patchbayd") {
		t.Errorf("a Pod after the file has vanished: got error %v, want one with the flag", err)
	}
	n.write("conf/10-other.conflist", []byte(`{"cniVersion":"1.0.0","name":"other","plugins":[{"type":"other"}]}`))
	n.expectOtherPlugin(p, "the file is back")
}

// The daemon of an uninstallation that has stopped halfway: all definitions were deleted, and some of them wait
// for finalizers. A daemon that starts then needs the others again, and completes the deletion.
func TestStartDuringUninstallation(t *testing.T) {
	env := apitest.New(t) // its definitions are deleted
	n, ns := newNode(t, env), env.Namespace(t)
	stop := n.start()
	n.awaitReady()
	cn := n.network("10.42.0.0/24")
	attached := n.attach(ns, cn)
	stop()
	env.Kubectl(t, "delete", "--kustomize", apitest.Definitions(t), "--wait=false")
	env.Kubectl(t, "wait", "--for=delete", "--timeout=60s", "crd/nodenetworks.danm.io", "crd/tenantconfigs.danm.io", "crd/tenantnetworks.danm.io", "crd/danmnets.danm.io")
	n.start()
	n.awaitNotReady("must serve the kinds DanmNet, NodeNetwork, TenantConfig, TenantNetwork of", "ClusterNetwork, DanmEp", "must not be in deletion")
	env.InstallDefinitions(t)
	n.detachBeforeDeletion(attached, cn)
	n.awaitNotReady("must serve the kinds ClusterNetwork, DanmEp of")
	env.InstallDefinitions(t)
	n.awaitReady()
}

// attach attaches a Pod to a network, and waits for its DanmEp, which has the finalizer of the node.
func (n *node) attach(namespace string, cn *v1.ClusterNetwork) *pod {
	n.t.Helper()
	p := n.pod(namespace, requestInterface(cn, "dynamic"))
	if _, err := n.call("ADD", p); err != nil {
		n.t.Fatal(err)
	}
	n.endpoints(cn, 1)
	return p
}

// detachBeforeDeletion detaches the last Pod of a network whose definition, and that of DanmEps, are in
// deletion. It expects the daemon to delete the DanmEp and to free the address, and then removes the finalizer
// of the network as the controller does, so that the deletion ends.
func (n *node) detachBeforeDeletion(p *pod, cn *v1.ClusterNetwork) {
	n.t.Helper()
	if _, err := n.call("DEL", p); err != nil {
		n.t.Errorf("DEL while the definitions are in deletion: %v", err)
	}
	n.env.Kubectl(n.t, "wait", "--for=delete", "--timeout=60s", "crd/danmeps.danm.io")
	eventually(n.t, "the address to be freed", func(ctx context.Context) error {
		got := &v1.ClusterNetwork{}
		if err := n.env.Client.Get(ctx, client.ObjectKeyFromObject(cn), got); err != nil {
			return err
		}
		if in := got.Status.IPAM; in != nil && (len(in.Held) > 0 || ipamtest.Allocated(in) > 0) {
			return fmt.Errorf("got entries %v and %d allocated addresses", in.Held, ipamtest.Allocated(in))
		}
		return nil
	})
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata": {"finalizers": null}}`))
	if err := n.env.Client.Patch(n.t.Context(), cn, patch); err != nil {
		n.t.Fatal(err)
	}
	n.env.Kubectl(n.t, "wait", "--for=delete", "--timeout=60s", "crd/clusternetworks.danm.io")
}

// writeOtherPlugin installs another CNI plugin and its configuration.
func (n *node) writeOtherPlugin() {
	n.t.Helper()
	for _, dir := range []string{"bin", "conf"} {
		if err := os.MkdirAll(n.path(dir), 0o755); err != nil {
			n.t.Fatal(err)
		}
	}
	n.write("bin/other", []byte(strings.ReplaceAll(otherPlugin, "RUNS", n.path("runs"))))
	n.write("conf/10-other.conflist", []byte(`{"cniVersion":"1.0.0","name":"other","plugins":[{"type":"other"}]}`))
}

// expectOtherPlugin attaches a Pod, and expects the address of the other plugin.
func (n *node) expectOtherPlugin(p *pod, when string) {
	n.t.Helper()
	result, err := n.call("ADD", p)
	if err != nil || len(result.IPs) != 1 || result.IPs[0].Address.String() != "10.9.0.2/24" {
		n.t.Errorf("a Pod without a network while %s: got %v and error %v, want 10.9.0.2/24", when, result, err)
	}
}

// awaitNotReady waits until /readyz returns 503 with all parts.
func (n *node) awaitNotReady(parts ...string) {
	n.t.Helper()
	eventually(n.t, "the daemon not to be ready", func(context.Context) error {
		res, err := http.Get("http://" + n.http + "/readyz")
		if err != nil {
			return err
		}
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		for _, part := range parts {
			if res.StatusCode != http.StatusServiceUnavailable || !strings.Contains(string(body), part) {
				return fmt.Errorf("got %s %q and error %w, want 503 with %q", res.Status, body, err, part)
			}
		}
		return err
	})
}

// awaitDefaultNetwork waits until the condition DefaultNetwork of the NodeNetwork has the reason, and checks
// that the status names the other plugin's configuration.
func (n *node) awaitDefaultNetwork(reason string) {
	n.t.Helper()
	eventually(n.t, "the condition DefaultNetwork with reason "+reason, func(ctx context.Context) error {
		var report v1.NodeNetwork
		if err := n.env.Client.Get(ctx, client.ObjectKey{Name: n.name}, &report); err != nil {
			return err
		}
		c, found := meta.FindStatusCondition(report.Status.Conditions, "DefaultNetwork"), report.Status.NodeConfiguration
		if c == nil || c.Status != metav1.ConditionTrue || c.Reason != reason || found == nil || *found != (v1.NodeConfiguration{File: "10-other.conflist", Name: "other"}) {
			return fmt.Errorf("got condition %+v and configuration %+v", c, found)
		}
		return nil
	})
}

// awaitNoDefaultNetwork waits until the condition DefaultNetwork of the NodeNetwork is False with the message.
func (n *node) awaitNoDefaultNetwork(message string) {
	n.t.Helper()
	eventually(n.t, "the condition DefaultNetwork to be False", func(ctx context.Context) error {
		var report v1.NodeNetwork
		if err := n.env.Client.Get(ctx, client.ObjectKey{Name: n.name}, &report); err != nil {
			return err
		}
		c := meta.FindStatusCondition(report.Status.Conditions, "DefaultNetwork")
		if c == nil || c.Status != metav1.ConditionFalse || c.Reason != v1.ReasonNoDefaultNetwork || !strings.Contains(c.Message, message) {
			return fmt.Errorf("got condition %+v, want one with %q", c, message)
		}
		return nil
	})
}

// defaultMACVLAN returns a network for Pods without an annotation.
func defaultMACVLAN() *v1.ClusterNetwork {
	return &v1.ClusterNetwork{ObjectMeta: metav1.ObjectMeta{Name: v1.DefaultNetworkName}, Spec: v1.NetworkSpec{
		NetworkID: "default", NetworkType: "macvlan", Options: v1.NetworkOptions{Device: "ens4", CIDR: "10.41.0.0/24"},
	}}
}
