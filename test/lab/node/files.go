// SPDX-License-Identifier: Apache-2.0

package node

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/patchbay-cni/patchbay/test/lab/fabric"
	"github.com/patchbay-cni/patchbay/test/lab/image"
	"github.com/patchbay-cni/patchbay/test/lab/uml"
)

// writeFiles writes what the node's programs read at start.
func (c Config) writeFiles() error {
	kubelet, err := json.MarshalIndent(c.kubelet(), "", "  ")
	if err != nil {
		return fmt.Errorf("encode kubelet's configuration: %w", err)
	}
	pods, err := json.MarshalIndent(c.podNetwork(), "", "  ")
	if err != nil {
		return fmt.Errorf("encode Pods' network: %w", err)
	}
	for name, content := range map[string][]byte{
		containerdConfig: []byte(containerd()),
		kubeletConfig:    kubelet,
		kubeletClient:    c.Kubeconfig,
		clientCA:         c.ClientCA,
		networkBatch:     []byte(c.network()),
		podNetwork:       pods,
	} {
		if err := os.WriteFile(c.path(name), content, 0o600); err != nil {
			return fmt.Errorf("write node's files: %w", err)
		}
	}
	return nil
}

// network sets the cards up; the way to everywhere else is the fabric.
func (c Config) network() string {
	lines := []string{"link set lo up"}
	for i, card := range c.Port.Cards() {
		lines = append(lines, fmt.Sprintf("link set vec%d name %s", i, card.Name))
		if card != c.Port.Agent() { // that one is the agent's to set up
			lines = append(lines, "address add "+card.Prefix.String()+" dev "+card.Name, "link set "+card.Name+" up")
		}
	}
	lines = append(lines, "route add default via "+fabric.Gateway().String(), "")
	return strings.Join(lines, "\n")
}

// podNetwork is the static configuration of the Pods' first network, as another
// plugin's DaemonSet or an administrator would leave it on a node.
func (c Config) podNetwork() map[string]any {
	return map[string]any{
		"cniVersion": "1.0.0",
		"name":       "pods",
		"plugins": []any{map[string]any{
			"type":      "bridge",
			"bridge":    "cni0",
			"isGateway": true,
			"ipam": map[string]any{
				"type":   "host-local",
				"ranges": []any{[]any{map[string]any{"subnet": c.Port.Pods().String()}}},
				"routes": []any{map[string]any{"dst": "0.0.0.0/0"}},
			},
		}},
	}
}

func (c Config) kubelet() map[string]any {
	return map[string]any{
		"apiVersion": "kubelet.config.k8s.io/v1beta1",
		"kind":       "KubeletConfiguration",
		"authentication": map[string]any{
			"anonymous": map[string]any{"enabled": false},
			"webhook":   map[string]any{"enabled": true},
			"x509":      map[string]any{"clientCAFile": uml.GuestDir + "/" + clientCA},
		},
		"authorization":               map[string]any{"mode": "Webhook"},
		"cgroupDriver":                "cgroupfs",
		"cgroupRoot":                  "/",
		"containerRuntimeEndpoint":    "unix://" + containerdSocket,
		"clusterDomain":               "cluster.local",
		"clusterDNS":                  []string{"10.96.0.10"}, // nobody there; without it every Pod gets a warning
		"resolvConf":                  "",
		"failSwapOn":                  false,
		"failCgroupV1":                false,
		"evictionHard":                map[string]string{"memory.available": "50Mi"},
		"imageGCHighThresholdPercent": 100,
		// A program that a test kills is back at once, also the fifth time.
		"crashLoopBackOff":          map[string]string{"maxContainerRestartPeriod": "1s"},
		"nodeStatusUpdateFrequency": "5s",
		"nodeLeaseDurationSeconds":  20,
		"syncFrequency":             "30s",
		"serializeImagePulls":       false,
		"shutdownGracePeriod":       "0s",
		"enforceNodeAllocatable":    []string{"none"},
	}
}

const containerdSocket = "/run/containerd/containerd.sock"

func containerd() string {
	return `version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = [
  "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs",
]
[grpc]
  address = "` + containerdSocket + `"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "` + image.Pause + `"
  # The machine may not let its processes have a lower score than itself.
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/opt/cni/bin"
    conf_dir = "/etc/cni/net.d"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
`
}
