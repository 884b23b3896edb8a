// SPDX-License-Identifier: Apache-2.0

package svcwatcher

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// portsOf are the Service's ports on this Pod. One whose name the Pod does not have
// is left out, as Kubernetes does; the Pod's address is served all the same.
func portsOf(svc *corev1.Service, pod *corev1.Pod) []discoveryv1.EndpointPort {
	ports := []discoveryv1.EndpointPort{}
	for i := range svc.Spec.Ports {
		p := &svc.Spec.Ports[i]
		number, ok := findPort(pod, p)
		if !ok {
			continue
		}
		name, protocol := p.Name, protocolOf(p.Protocol)
		ports = append(ports, discoveryv1.EndpointPort{Name: &name, Port: &number, Protocol: &protocol, AppProtocol: p.AppProtocol})
	}
	return ports
}

// findPort resolves a targetPort: a number is taken as it is, a name is looked up
// with the protocol. (k8s.io/endpointslice has this in a package that brings its
// controller and a metrics library along.)
func findPort(pod *corev1.Pod, p *corev1.ServicePort) (int32, bool) {
	if p.TargetPort.Type == intstr.Int {
		if p.TargetPort.IntVal == 0 {
			return p.Port, true
		}
		return p.TargetPort.IntVal, true
	}
	for _, port := range NamedPorts(&pod.Spec) {
		if port.Name == p.TargetPort.StrVal && protocolOf(port.Protocol) == protocolOf(p.Protocol) {
			return port.ContainerPort, true
		}
	}
	return 0, false
}

// NamedPorts are the ports of a Pod that a Service can name, in the order in which
// they are looked up: those of containers, then those of sidecars.
func NamedPorts(spec *corev1.PodSpec) []corev1.ContainerPort {
	var ports []corev1.ContainerPort
	collect := func(c *corev1.Container) {
		for _, p := range c.Ports {
			if p.Name != "" {
				ports = append(ports, p)
			}
		}
	}
	for i := range spec.Containers {
		collect(&spec.Containers[i])
	}
	for i := range spec.InitContainers {
		c := &spec.InitContainers[i]
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			collect(c)
		}
	}
	return ports
}

// protocolOf is TCP where the API server would have filled it in.
func protocolOf(p corev1.Protocol) corev1.Protocol {
	if p == "" {
		return corev1.ProtocolTCP
	}
	return p
}
