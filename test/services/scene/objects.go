// SPDX-License-Identifier: Apache-2.0

package scene

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
)

// Network is a ClusterNetwork that nobody attaches to but by DanmEps.
func Network(name string, tenants ...string) *v1.ClusterNetwork {
	return &v1.ClusterNetwork{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.NetworkSpec{
		NetworkID: "scene", NetworkType: v1.TypeMACVLAN, AllowedTenants: tenants,
		Options: v1.NetworkOptions{Device: "ens4", CIDR: "10.0.0.0/8", Net6: "fd00::/32"},
	}}
}

// Service is a headless one for the Pods with the label app on a ClusterNetwork, with
// a port by number.
func Service(namespace, name, app, network string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: map[string]string{
			"danm.io/selector": fmt.Sprintf(`{"app":%q}`, app), "danm.io/clusterNetwork": network,
		}},
		Spec: corev1.ServiceSpec{
			ClusterIP: corev1.ClusterIPNone,
			Ports:     []corev1.ServicePort{{Name: "web", Port: 80, TargetPort: intstr.FromInt32(8080), Protocol: corev1.ProtocolTCP}},
		},
	}
}

// Pod is one on a node, which nobody runs. Its finalizer-free deletion takes as long
// as its kubelet would: until Kill.
func Pod(namespace, name, app string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"app": app}},
		Spec: corev1.PodSpec{
			NodeName:                     "node-1",
			AutomountServiceAccountToken: new(bool),
			Containers: []corev1.Container{{
				Name: "main", Image: "none", Ports: []corev1.ContainerPort{{Name: "web", ContainerPort: 8080}},
			}},
		},
	}
}

// DanmEp is what a node daemon writes for an interface of the Pod, which has a UID.
func DanmEp(pod *corev1.Pod, net *v1.ClusterNetwork, address, address6 string) *v1.DanmEp {
	return &v1.DanmEp{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name + "-" + string(pod.UID[:8]) + "-" + net.Name, Labels: pod.Labels},
		Spec: v1.DanmEpSpec{
			NetworkName: net.Name, NetworkUID: string(net.UID), NetworkType: net.Spec.NetworkType, APIType: v1.KindClusterNetwork,
			EndpointID: string(pod.UID), Host: pod.Spec.NodeName, Pod: pod.Name, PodUID: string(pod.UID), CID: "c-" + string(pod.UID),
			Interface: v1.DanmEpInterface{Name: net.Name[:min(15, len(net.Name))], Address: address, AddressIPv6: address6},
		},
	}
}

// SetReady writes a Pod's status as a kubelet does.
func SetReady(ctx context.Context, c client.Client, pod *corev1.Pod, ready bool) error {
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	return SetStatus(ctx, c, pod, corev1.PodStatus{
		Phase:      corev1.PodRunning,
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: status, LastTransitionTime: metav1.Now()}},
	})
}

// SetStatus writes a Pod's status, whatever it was.
func SetStatus(ctx context.Context, c client.Client, pod *corev1.Pod, status corev1.PodStatus) error {
	changed := pod.DeepCopy()
	changed.Status = status
	changed.ResourceVersion = ""
	if err := c.Status().Update(ctx, changed); err != nil {
		return fmt.Errorf("write status of Pod %s: %w", pod.Name, err)
	}
	*pod = *changed
	return nil
}

// Add creates a Pod with its status and an interface with these addresses.
func Add(ctx context.Context, c client.Client, pod *corev1.Pod, net *v1.ClusterNetwork, address, address6 string, ready bool) error {
	if err := c.Create(ctx, pod); err != nil {
		return fmt.Errorf("create Pod %s: %w", pod.Name, err)
	}
	if err := c.Create(ctx, DanmEp(pod, net, address, address6)); err != nil {
		return fmt.Errorf("create DanmEp of Pod %s: %w", pod.Name, err)
	}
	return SetReady(ctx, c, pod, ready)
}

// Kill removes a Pod as a kubelet does when its containers have ended, or somebody
// who does not wait for it.
func Kill(ctx context.Context, c client.Client, pod *corev1.Pod) error {
	if err := c.Delete(ctx, pod, client.GracePeriodSeconds(0)); err != nil {
		return fmt.Errorf("delete Pod %s: %w", pod.Name, err)
	}
	return nil
}
