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
}

// ours is our plugin before the daemon that listens in dir.
func ours(o options) contender {
	return contender{
		name: "patchbay", plugin: o.plugin, path: o.peers,
		config: fmt.Sprintf(`{"cniVersion":"1.0.0","name":"bench","type":"patchbay","socket":%q}`, socketIn(o.dir)),
	}
}

// debians does the same with Debian's plugins.
func debians(o options) contender {
	return contender{
		name: "macvlan + host-local", plugin: filepath.Join(o.peers, "macvlan"), path: o.peers,
		config: fmt.Sprintf(`{"cniVersion":"1.0.0","name":"peer","type":"macvlan","master":%q,"mode":"bridge",`+
			`"ipam":{"type":"host-local","dataDir":%q,"ranges":[[{"subnet":"10.90.0.0/16"}]]}}`,
			parent, filepath.Join(o.dir, "host-local")),
	}
}

// result is what is looked at of a plugin's output.
type result struct {
	IPs []struct {
		Address string `json:"address"`
	} `json:"ips"`
}

// call runs the plugin once and returns how long its caller waited.
func (c contender) call(ctx context.Context, command, id, netns string) (time.Duration, error) {
	cmd := exec.CommandContext(ctx, c.plugin)
	cmd.Env = []string{
		"CNI_COMMAND=" + command, "CNI_CONTAINERID=" + id, "CNI_NETNS=" + netns, "CNI_IFNAME=eth0", "CNI_PATH=" + c.path,
		"CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=bench;K8S_POD_NAME=" + id + ";K8S_POD_UID=" + id,
	}
	cmd.Stdin = strings.NewReader(c.config)
	var stdout bytes.Buffer
	cmd.Stdout = &stdout
	start := time.Now()
	err := cmd.Run()
	took := time.Since(start)
	if err != nil {
		return 0, fmt.Errorf("%s: %s %s: %w: %s", c.name, command, id, err, stdout.Bytes())
	}
	if command == "ADD" {
		err = oneAddress(stdout.Bytes())
	}
	return took, err
}

// oneAddress wants of a result what was asked for; a plugin that does less is
// not to be compared with.
func oneAddress(stdout []byte) error {
	var r result
	if err := json.Unmarshal(stdout, &r); err != nil || len(r.IPs) != 1 {
		return fmt.Errorf("want a result with one address, got %s: %w", stdout, err)
	}
	return nil
}
