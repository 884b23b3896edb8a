// SPDX-License-Identifier: Apache-2.0

package render

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"path"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// checker collects the reasons why a merged template cannot work. It looks at the result, because a patch
// can remove anything.
type checker struct {
	path      *field.Path
	container string
	// defaults is the template without the patch, and pod the one with it.
	defaults, pod *corev1.PodTemplateSpec
	selector      map[string]string

	problems []error
}

// rejectf adds a problem.
func (c *checker) rejectf(at *field.Path, format string, args ...any) {
	c.problems = append(c.problems, fmt.Errorf("%s: %s", at, fmt.Sprintf(format, args...)))
}

// run checks what all parts need, and then what the part itself needs.
func (c *checker) run(own func(*checker)) error {
	for _, key := range slices.Sorted(maps.Keys(c.selector)) {
		value := c.selector[key]
		if got := c.pod.Labels[key]; got != value {
			c.rejectf(c.path.Child("metadata", "labels").Key(key), "must be %s, because the workload selects its Pods by it: got %q", value, got)
		}
	}
	if c.main() == nil {
		c.rejectf(c.path.Child("spec", "containers"), "must have the container %s, which is the program: change it under this name", c.container)
		return errors.Join(c.problems...)
	}
	spec := c.path.Child("spec")
	if p := c.pod.Spec.RestartPolicy; p != "" && p != corev1.RestartPolicyAlways {
		c.rejectf(spec.Child("restartPolicy"), "must be Always: got %s", p)
	}
	if c.main().Image == "" {
		c.rejectf(c.at("image"), "must not be empty")
	}
	if c.pod.Spec.ServiceAccountName == "" {
		c.rejectf(spec.Child("serviceAccountName"), "must not be empty, because the program needs rights")
	}
	if old := c.pod.Spec.DeprecatedServiceAccount; old != "" && old != c.pod.Spec.ServiceAccountName {
		c.rejectf(spec.Child("serviceAccount"), "must be left out, because serviceAccountName has taken its place: got %s", old)
	}
	c.checkToken(spec)
	c.checkArguments()
	c.checkPorts()
	own(c)
	return errors.Join(c.problems...)
}

// main returns the program's container.
func (c *checker) main() *corev1.Container { return (&template{c.pod}).container(c.container) }

// at returns the path of a field of the program's container.
func (c *checker) at(names ...string) *field.Path {
	return c.path.Child("spec", "containers").Key(c.container).Child(names[0], names[1:]...)
}

// tokenFolder is where programs find the token of their ServiceAccount.
const tokenFolder = "/var/run/secrets/kubernetes.io/serviceaccount"

func (c *checker) checkToken(spec *field.Path) {
	isOn := c.pod.Spec.AutomountServiceAccountToken
	if isOn != nil && !*isOn && c.mount(tokenFolder) == nil {
		c.rejectf(spec.Child("automountServiceAccountToken"), "must not be false without a volume at %s, because the program needs its token", tokenFolder)
	}
}

// checkArguments requires the flags without which the program does not start or is not reached, and the
// variables in them.
func (c *checker) checkArguments() {
	if len(c.main().Command) > 0 {
		return // a wrapper may add what it likes
	}
	for _, argument := range (&template{c.defaults}).container(c.container).Args {
		name, _, _ := strings.Cut(argument, "=")
		if name == "--metrics-address" || c.hasFlag(name) {
			continue
		}
		c.rejectf(c.at("args"), "must have the flag %s, as in the default %s: a list of arguments in a template takes the place of the default list", name, argument)
	}
	for _, variable := range (&template{c.defaults}).container(c.container).Env {
		if variable.ValueFrom == nil {
			continue
		}
		i := slices.IndexFunc(c.main().Env, func(e corev1.EnvVar) bool { return e.Name == variable.Name })
		if i < 0 || c.main().Env[i].ValueFrom == nil && c.main().Env[i].Value == "" {
			c.rejectf(c.at("env").Key(variable.Name), "must be set, because the program needs it")
		}
	}
}

func (c *checker) hasFlag(name string) bool {
	return slices.ContainsFunc(c.main().Args, func(a string) bool { return a == name || strings.HasPrefix(a, name+"=") })
}

// flag returns the value of a flag in the form --name=value, or the default.
func (c *checker) flag(name, fallback string) string {
	for _, a := range c.main().Args {
		if value, ok := strings.CutPrefix(a, "--"+name+"="); ok {
			fallback = value
		}
	}
	return fallback
}

// checkPorts compares the addresses on which the program listens with the ports that probes, Services and
// Prometheus find by name, and requires that no two containers use a port of the node.
func (c *checker) checkPorts() {
	for _, l := range []struct{ flag, port string }{{"health-address", "http"}, {"metrics-address", "metrics"}, {"webhook-address", "webhook"}} {
		flag, port := l.flag, l.port
		address := c.flag(flag, "")
		if address == "" {
			continue
		}
		_, number, err := net.SplitHostPort(address)
		if err != nil {
			c.rejectf(c.at("args"), "flag --%s must be an address with a port: got %q", flag, address)
			continue
		}
		i := slices.IndexFunc(c.main().Ports, func(p corev1.ContainerPort) bool { return p.Name == port })
		switch {
		case i < 0 && port == "metrics":
		case i < 0:
			c.rejectf(c.at("ports"), "must have the port %s, because it is found by this name", port)
		case strconv.Itoa(int(c.main().Ports[i].ContainerPort)) != number:
			c.rejectf(c.at("ports").Key(port), "must be the port of the flag --%s: got %d and %q", flag, c.main().Ports[i].ContainerPort, address)
		}
		if !c.pod.Spec.HostNetwork && strings.Contains(address, "$(HOST_IP)") {
			c.rejectf(c.at("args"), "flag --%s must not be an address of the node without hostNetwork: got %q", flag, address)
		}
	}
	seen := map[string]string{}
	for _, p := range hostPorts(c.pod) {
		if other, ok := seen[p.key]; ok {
			c.rejectf(c.path.Child("spec", "containers").Key(p.container).Child("ports"), "must not have %s on the node's network, which container %s has, too", p.key, other)
		}
		seen[p.key] = p.container
	}
}

// hostPort is a port of the node that a container uses.
type hostPort struct{ key, container string }

// hostPorts returns the ports of the node that a Pod uses.
func hostPorts(pod *corev1.PodTemplateSpec) []hostPort {
	var ports []hostPort
	// Other init containers end before the program starts.
	sidecars := slices.DeleteFunc(slices.Clone(pod.Spec.InitContainers), func(c corev1.Container) bool { return c.RestartPolicy == nil })
	for _, c := range slices.Concat(pod.Spec.Containers, sidecars) {
		for _, p := range c.Ports {
			number := p.HostPort
			if pod.Spec.HostNetwork {
				number = p.ContainerPort
			}
			protocol := p.Protocol
			if protocol == "" {
				protocol = corev1.ProtocolTCP
			}
			if number != 0 {
				ports = append(ports, hostPort{key: fmt.Sprintf("%d/%s", number, protocol), container: c.Name})
			}
		}
	}
	return ports
}

// mount returns the mount of the program's container at a path.
func (c *checker) mount(at string) *corev1.VolumeMount {
	mounts := c.main().VolumeMounts
	i := slices.IndexFunc(mounts, func(m corev1.VolumeMount) bool { return path.Clean(m.MountPath) == path.Clean(at) })
	if i < 0 {
		return nil
	}
	return &mounts[i]
}

// volume returns a volume of the Pod.
func (c *checker) volume(name string) *corev1.Volume {
	i := slices.IndexFunc(c.pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == name })
	if i < 0 {
		return nil
	}
	return &c.pod.Spec.Volumes[i]
}
