// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// contender is a plugin with its configuration.
type contender struct {
	name   string
	plugin string
	path   string
	config string
	// pods has the Pods of a contender in a cluster. Without pods, each Pod has the name of its sandbox.
	pods []pod
}

// pod is the name and the UID of a Pod.
type pod struct{ name, uid string }

// sandbox is the sandbox of a Pod.
type sandbox struct {
	pod
	id, netns string
}

// sandbox returns the i-th sandbox of a run.
func (c contender) sandbox(run, i int, netns string) sandbox {
	id := fmt.Sprintf("r%dp%d", run, i)
	if len(c.pods) > 0 {
		return sandbox{c.pods[i%len(c.pods)], id, netns}
	}
	return sandbox{pod{id, id}, id, netns}
}

// patchbayPlugin returns Patchbay's plugin with the daemon without a cluster.
func patchbayPlugin(o options) contender {
	return contender{
		name: "patchbay", plugin: o.plugin, path: o.peers,
		config: fmt.Sprintf(`{"cniVersion":"1.0.0","name":"bench","type":"patchbay","socket":%q}`, socketIn(o.dir)),
	}
}

// patchbayInCluster returns Patchbay's plugin with the node daemon of a cluster.
func patchbayInCluster(o options, pods []pod) contender {
	c := patchbayPlugin(o)
	c.name, c.pods = "patchbay in a cluster", pods
	c.config = fmt.Sprintf(`{"cniVersion":"1.0.0","name":"bench","type":"patchbay","socket":%q}`, clusterSocket(o.dir))
	return c
}

// debianPlugins returns Debian's plugins with an equivalent configuration.
func debianPlugins(o options) contender {
	return contender{
		name: "macvlan + host-local", plugin: filepath.Join(o.peers, "macvlan"), path: o.peers,
		config: fmt.Sprintf(`{"cniVersion":"1.0.0","name":"peer","type":"macvlan","master":%q,"mode":"bridge",`+
			`"ipam":{"type":"host-local","dataDir":%q,"ranges":[[{"subnet":"10.90.0.0/16"}]]}}`,
			parentLink, filepath.Join(o.dir, "host-local")),
	}
}

// podNamespace is the namespace of all Pods.
const podNamespace = "bench"

// result is the part of a plugin's output that is checked.
type result struct {
	IPs []struct {
		Address string `json:"address"`
	} `json:"ips"`
}

// execPlugin runs the plugin once and returns the duration.
func (c contender) execPlugin(ctx context.Context, command string, s sandbox) (time.Duration, error) {
	cmd := exec.CommandContext(ctx, c.plugin)
	cmd.Env = []string{
		"CNI_COMMAND=" + command, "CNI_CONTAINERID=" + s.id, "CNI_NETNS=" + s.netns, "CNI_IFNAME=eth0", "CNI_PATH=" + c.path,
		"CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=" + podNamespace + ";K8S_POD_NAME=" + s.name + ";K8S_POD_UID=" + s.uid,
	}
	cmd.Stdin = strings.NewReader(c.config)
	var stdout bytes.Buffer
	cmd.Stdout = &stdout
	start := time.Now()
	err := cmd.Run()
	took := time.Since(start)
	if err != nil {
		return 0, fmt.Errorf("%s: %s %s: %w: %s", c.name, command, s.id, err, stdout.Bytes())
	}
	if command == "ADD" {
		err = checkOneAddress(stdout.Bytes())
	}
	return took, err
}

// checkOneAddress returns an error unless the result has one address, so that no plugin that does less is
// compared.
func checkOneAddress(stdout []byte) error {
	var r result
	if err := json.Unmarshal(stdout, &r); err != nil || len(r.IPs) != 1 {
		return fmt.Errorf("result must have one address, but is %s: %w", stdout, err)
	}
	return nil
}
