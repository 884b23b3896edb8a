// SPDX-License-Identifier: Apache-2.0

package node

import (
	"path"
	"strings"

	"github.com/patchbay-cni/patchbay/test/lab/guest"
	"github.com/patchbay-cni/patchbay/test/lab/uml"
)

// disk is where the node's disk is mounted.
const disk = "/run/disk"

// diskOptions let a power cut take the last second. By default ext4 would leave files
// of up to half a minute ago empty, which neither containerd nor libcni survive: a
// cached result of libcni without content keeps its Pod's sandbox for ever.
const diskOptions = "nodelalloc,commit=1"

// overlaid folders show the machine's files below the node's own.
func overlaid() []string { return []string{"etc", "opt", "var"} }

// own folders begin empty, whatever the machine has there. Those of containerd and
// kubelet must not be on an overlay, since they mount overlays themselves.
func own() []string {
	return []string{
		"etc/cni/net.d", "opt/cni/bin",
		"var/lib/cni", "var/lib/containerd", "var/lib/kubelet", "var/lib/patchbay", "var/log/pods", "var/log/containers",
	}
}

func (c Config) mounts() []guest.Mount {
	folders := []string{}
	for _, f := range overlaid() {
		folders = append(folders, "overlay/"+f, "overlay-work/"+f)
	}
	for _, f := range own() {
		folders = append(folders, "own/"+f)
	}
	mounts := []guest.Mount{
		{Source: "cgroup2", Target: "/sys/fs/cgroup", Type: "cgroup2"},
		{Source: "mqueue", Target: "/dev/mqueue", Type: "mqueue"},
		{Source: "/dev/ubda", Target: disk, Type: "ext4", Data: diskOptions, Folders: folders},
	}
	for _, f := range overlaid() {
		mounts = append(mounts, guest.Mount{Source: "overlay", Target: "/" + f, Type: "overlay", Data: strings.Join([]string{
			"lowerdir=/" + f, "upperdir=" + disk + "/overlay/" + f, "workdir=" + disk + "/overlay-work/" + f,
		}, ",")})
	}
	for _, f := range own() {
		mounts = append(mounts, guest.Mount{Source: disk + "/own/" + f, Target: "/" + f, Type: "bind"})
	}
	return mounts
}

// setup are shell lines where a program would be longer.
func (c Config) setup() [][]string {
	shell := func(script string) []string { return []string{"/bin/sh", "-ec", script} }
	return [][]string{
		{"/sbin/ip", "-batch", uml.GuestDir + "/" + networkBatch},
		{"/sbin/sysctl", "-q", "-w", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1"},
		// This kernel does not say how fast its processor is, and cAdvisor gives up.
		shell("{ cat /proc/cpuinfo; echo 'cpu MHz : 2600.000'; } >/run/cpuinfo; mount --bind /run/cpuinfo /proc/cpuinfo"),
		shell("ln -sf /usr/lib/cni/* /opt/cni/bin/"),
		shell("cp " + uml.GuestDir + "/" + podNetwork + " /etc/cni/net.d/"),
	}
}

func (c Config) services() []guest.Service {
	return []guest.Service{
		{
			Name:   "containerd",
			Args:   []string{"/usr/bin/containerd", "--config", uml.GuestDir + "/" + containerdConfig},
			Socket: containerdSocket,
			Log:    uml.GuestDir + "/" + containerdLog,
		},
		{
			Name: "kubelet",
			Args: []string{
				path.Join(c.Bin, "kubelet"),
				"--config=" + uml.GuestDir + "/" + kubeletConfig,
				"--kubeconfig=" + uml.GuestDir + "/" + kubeletClient,
				"--hostname-override=" + c.Name,
				"--node-ip=" + c.Port.Management().Prefix.Addr().String(),
			},
			Log: uml.GuestDir + "/" + kubeletLog,
		},
	}
}

func (c Config) guest() guest.Spec {
	return guest.Spec{
		Hostname: c.Name,
		Mounts:   c.mounts(),
		Env: []string{
			"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LANG=C.UTF-8",
		},
		Setup:    c.setup(),
		Agent:    &guest.Agent{Card: c.Port.Agent().Name, Prefix: c.Port.Agent().Prefix, Port: agentPort},
		Services: c.services(),
	}
}
