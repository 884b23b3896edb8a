// SPDX-License-Identifier: Apache-2.0

package node

import (
	"encoding/json"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/patchbay-cni/patchbay/test/lab/fabric"
	"github.com/patchbay-cni/patchbay/test/lab/guest"
	"github.com/patchbay-cni/patchbay/test/lab/image"
	"github.com/patchbay-cni/patchbay/test/lab/vm"
)

// Names in a node's folder.
const (
	containerdConfig = "containerd.toml"
	kubeletConfig    = "kubelet.json"
	kubeletClient    = "kubelet.kubeconfig"
	clientCA         = "client-ca.crt"
	networkBatch     = "network.ip"
	podNetwork       = "pods.conflist"
	containerdLog    = "containerd.log"
	kubeletLog       = "kubelet.log"
)

// Config describes a node.
type Config struct {
	// Name is the node's host name and its name in Kubernetes.
	Name string
	// Port is its place in the fabric.
	Port fabric.Port
	// Fabric connects it.
	Fabric fabric.Fabric
	// Dir holds its logs and configuration, Disk is the image of its disk.
	Dir, Disk string
	// Kernel that the node boots.
	Kernel vm.Kernel
	// Memory in MiB.
	Memory int
	// Init is a program whose main hands over to guest.Main.
	Init string
	// Bin is the folder with kubelet.
	Bin string
	// Containerd2 is the folder with the programs of containerd 2. If it is empty, the node runs the
	// machine's containerd.
	Containerd2 string
	// Images are archives for containerd.
	Images []string
	// CheckImages compares the files of imported images with their archives.
	CheckImages bool
	// Labels are those of the Node object, as KEY=VALUE, separated by commas.
	Labels string
	// Kubeconfig is the kubelet's; ClientCA signs those who may talk to it.
	Kubeconfig, ClientCA []byte
	// Logf reports what is unusual; nil reports nothing.
	Logf func(format string, args ...any)
}

func (c Config) path(name string) string { return filepath.Join(c.Dir, name) }

func (c Config) logf(format string, args ...any) {
	if c.Logf != nil {
		c.Logf(format, args...)
	}
}

// agentPort is where the node's agent listens.
const agentPort = 1

func (c Config) agentAddress() string {
	return fmt.Sprintf("%s:%d", c.Port.Agent().Prefix.Addr(), agentPort)
}

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
		containerdConfig: []byte(c.containerd()),
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

// network gives the cards their addresses; the way to everywhere else is the fabric.
func (c Config) network() string {
	lines := []string{"link set lo up"}
	for _, card := range c.Port.Cards() {
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
			"x509":      map[string]any{"clientCAFile": vm.GuestDir + "/" + clientCA},
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

// containerd is its configuration. Version 3, of containerd 2, has the settings in two plugins.
func (c Config) containerd() string {
	const common = `root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = [
  "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs",
]
[grpc]
  address = "` + containerdSocket + `"
`
	if c.Containerd2 != "" {
		return "version = 3\n" + common + `[plugins."io.containerd.cri.v1.images"]
  snapshotter = "overlayfs"
  [plugins."io.containerd.cri.v1.images".pinned_images]
    sandbox = "` + image.Pause + `"
[plugins."io.containerd.cri.v1.runtime"]
  # The machine may not let its processes have a lower score than itself.
  restrict_oom_score_adj = true
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = ["/opt/cni/bin"]
    conf_dir = "/etc/cni/net.d"
  [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
`
	}
	return "version = 2\n" + common + `[plugins."io.containerd.grpc.v1.cri"]
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

// timerSlack is for the Go programs of a node: while one works, a thread of each sleeps for 20 µs at
// a time (runtime.sysmon), and a wake-up of a guest costs about as much.
const timerSlack = time.Millisecond

func (c Config) guest() guest.Spec {
	return guest.Spec{
		Hostname: c.Name,
		Mounts:   c.mounts(),
		Env: []string{
			"PATH=" + c.searchPath(), "HOME=/root", "LANG=C.UTF-8",
		},
		TimerSlack: timerSlack,
		Setup:      c.setup(),
		Agent:      &guest.Agent{Card: c.Port.Agent().Name, Prefix: c.Port.Agent().Prefix, Port: agentPort},
		Services:   c.services(),
	}
}

// searchPath is the PATH of all programs. containerd finds its shim there.
func (c Config) searchPath() string {
	const machine = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	if c.Containerd2 != "" {
		return c.Containerd2 + ":" + machine
	}
	return machine
}

// containerdProgram is the path of containerd in the node.
func (c Config) containerdProgram() string {
	if c.Containerd2 != "" {
		return path.Join(c.Containerd2, "containerd")
	}
	return "/usr/bin/containerd"
}

// disk is where the node's disk is mounted.
const disk = "/run/disk"

// diskOptions let a power cut take the last second. By default ext4 would leave files
// of up to half a minute ago empty, which neither containerd nor libcni survive: a
// cached result of libcni without content keeps its Pod's sandbox for ever.
const diskOptions = "nodelalloc,commit=1"

// overlaidFolders folders show the machine's files below the node's own.
func overlaidFolders() []string { return []string{"etc", "opt", "var"} }

// emptyFolders folders begin empty, whatever the machine has there. Those of containerd and
// kubelet must not be on an overlay, since they mount overlays themselves.
func emptyFolders() []string {
	return []string{
		"etc/cni/net.d", "opt/cni/bin",
		"var/lib/cni", "var/lib/containerd", "var/lib/kubelet", "var/lib/patchbay", "var/log/pods", "var/log/containers",
	}
}

func (c Config) mounts() []guest.Mount {
	folders := []string{}
	for _, f := range overlaidFolders() {
		folders = append(folders, "overlay/"+f, "overlay-work/"+f)
	}
	for _, f := range emptyFolders() {
		folders = append(folders, "own/"+f)
	}
	mounts := []guest.Mount{
		{Source: "cgroup2", Target: "/sys/fs/cgroup", Type: "cgroup2"},
		{Source: "mqueue", Target: "/dev/mqueue", Type: "mqueue"},
		{Source: c.Kernel.DiskDevice(0), Target: disk, Type: "ext4", Data: diskOptions, Folders: folders},
	}
	for _, f := range overlaidFolders() {
		mounts = append(mounts, guest.Mount{Source: "overlay", Target: "/" + f, Type: "overlay", Data: strings.Join([]string{
			"lowerdir=/" + f, "upperdir=" + disk + "/overlay/" + f, "workdir=" + disk + "/overlay-work/" + f,
		}, ",")})
	}
	for _, f := range emptyFolders() {
		mounts = append(mounts, guest.Mount{Source: disk + "/own/" + f, Target: "/" + f, Type: "bind"})
	}
	return mounts
}

// setup are shell lines where a program would be longer.
func (c Config) setup() [][]string {
	shell := func(script string) []string { return []string{"/bin/sh", "-ec", script} }
	return [][]string{
		{"/sbin/ip", "-batch", vm.GuestDir + "/" + networkBatch},
		{"/sbin/sysctl", "-q", "-w", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1"},
		// User-Mode Linux does not say how fast its processor is, and cAdvisor gives up.
		shell(`if ! grep -q '^cpu MHz' /proc/cpuinfo; then
				{ cat /proc/cpuinfo; echo 'cpu MHz : 2600.000'; } >/run/cpuinfo
				mount --bind /run/cpuinfo /proc/cpuinfo
			fi`),
		shell("ln -sf /usr/lib/cni/* /opt/cni/bin/"),
		shell("cp " + vm.GuestDir + "/" + podNetwork + " /etc/cni/net.d/"),
	}
}

func (c Config) services() []guest.Service {
	return []guest.Service{
		{
			Name:   "containerd",
			Args:   []string{c.containerdProgram(), "--config", vm.GuestDir + "/" + containerdConfig},
			Socket: containerdSocket,
			Log:    vm.GuestDir + "/" + containerdLog,
		},
		{
			Name: "kubelet",
			Args: []string{
				path.Join(c.Bin, "kubelet"),
				"--config=" + vm.GuestDir + "/" + kubeletConfig,
				"--kubeconfig=" + vm.GuestDir + "/" + kubeletClient,
				"--hostname-override=" + c.Name,
				"--node-labels=" + c.Labels,
				"--node-ip=" + c.Port.Management().Prefix.Addr().String(),
			},
			Log: vm.GuestDir + "/" + kubeletLog,
		},
	}
}
