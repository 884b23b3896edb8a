// SPDX-License-Identifier: Apache-2.0

package svcwatcher

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// portsOf returns the Service's ports on a Pod. A named port that the Pod does not have is left
// out, as Kubernetes does, and the Pod's address is published all the same.
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

// findPort resolves a targetPort: a number as it is, a name with its protocol. (The package of
// k8s.io/endpointslice with this function links its controller and a metrics library.)
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

// NamedPorts returns the named ports of a Pod in the order of lookup: those of containers, then
// those of sidecars.
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

// protocolOf returns TCP where the API server would default to it.
func protocolOf(p corev1.Protocol) corev1.Protocol {
	if p == "" {
		return corev1.ProtocolTCP
	}
	return p
}
