// SPDX-License-Identifier: Apache-2.0

package controlplane

import "path/filepath"

// Part is one program of a control plane.
type Part string

// The parts, in the order in which they start.
const (
	Etcd              Part = "etcd"
	APIServer         Part = "kube-apiserver"
	ControllerManager Part = "kube-controller-manager"
	Scheduler         Part = "kube-scheduler"
)

func (p Part) pidFile() string    { return string(p) + ".pid" }
func (p Part) logFile() string    { return string(p) + ".log" }
func (p Part) kubeconfig() string { return string(p) + ".kubeconfig" }

// parts lists what this configuration runs, in starting order.
func (c Config) parts() []Part {
	var parts []Part
	if c.Etcd == "" {
		parts = append(parts, Etcd)
	}
	parts = append(parts, APIServer)
	if c.ControllerManager {
		parts = append(parts, ControllerManager)
	}
	if c.Scheduler {
		parts = append(parts, Scheduler)
	}
	return parts
}

func (c Config) program(part Part) string {
	if part == Etcd {
		return string(Etcd) // the distribution's
	}
	return filepath.Join(c.Bin, string(part))
}

// command returns the whole command line of a part.
func (c Config) command(part Part) []string {
	args := map[Part]func() []string{
		Etcd:              c.etcdArgs,
		APIServer:         c.apiServerArgs,
		ControllerManager: c.controllerManagerArgs,
		Scheduler:         c.schedulerArgs,
	}[part]()
	return append(append([]string{c.program(part)}, args...), c.ExtraArgs[part]...)
}
