// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
)

// pod returns a Pod as a ReplicaSet creates it, in one of the namespaces. An annotated one names two
// or three networks. The others have an annotation of the same size, which is not Patchbay's.
func (o options) pod(prefix string, i int, annotated bool) *corev1.Pod {
	isController, app := true, "web-"+strconv.Itoa(i%50)
	key := "example.com/interfaces"
	if annotated {
		key = v1.InterfacesAnnotation
	}
	container := corev1.Container{
		Name: "main", Image: "registry.example.com/team/" + app + ":1.2.3",
		Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}},
		Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("128Mi")},
			Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("256Mi")},
		},
		ReadinessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/ready", Port: intstr.FromString("http")}}},
		LivenessProbe:  &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/live", Port: intstr.FromString("http")}}},
		VolumeMounts:   []corev1.VolumeMount{{Name: "config", MountPath: "/etc/app"}, {Name: "cache", MountPath: "/var/cache/app"}},
	}
	for n := range 10 {
		container.Env = append(container.Env, corev1.EnvVar{Name: fmt.Sprintf("SETTING_%d", n), Value: "a value of a usual length"})
	}
	sidecar := container.DeepCopy()
	sidecar.Name, sidecar.Ports, sidecar.ReadinessProbe, sidecar.LivenessProbe = "proxy", nil, nil, nil
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace(i % o.namespaces), Name: prefix + "-" + strconv.Itoa(i),
			Labels:      map[string]string{"app.kubernetes.io/name": app, "app.kubernetes.io/part-of": "shop", "pod-template-hash": "6d4b75cb6d"},
			Annotations: map[string]string{key: o.interfaces(i)},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: appsv1.SchemeGroupVersion.String(), Kind: "ReplicaSet", Name: app + "-6d4b75cb6d", UID: types.UID(app), Controller: &isController,
			}},
		},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{container, *sidecar},
			Volumes: []corev1.Volume{
				{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: app}}}},
				{Name: "cache", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
			},
		},
	}
}

// interfaces returns the value of a Pod's annotation: a ClusterNetwork, a second one for every third
// Pod, and a TenantNetwork if the namespace has one.
func (o options) interfaces(i int) string {
	shared := o.clusterNetworks()
	text := fmt.Sprintf(`[{"clusterNetwork": %q, "ip": "dynamic"}`, clusterNetwork(i%shared))
	if i%3 == 0 && shared > 1 {
		text += fmt.Sprintf(`, {"clusterNetwork": %q, "ip": "dynamic"}`, clusterNetwork((i+1)%shared))
	}
	if own := (o.networks - shared) / o.namespaces; own > 0 {
		text += fmt.Sprintf(`, {"tenantNetwork": %q, "ip": "dynamic"}`, tenantNetwork(i/o.namespaces%own))
	}
	return text + "]"
}

// clusterNetworks returns the number of ClusterNetworks.
func (o options) clusterNetworks() int { return max(o.networks*3/5, 1) }

func namespace(i int) string      { return fmt.Sprintf("tenant-%d", i) }
func half(i int) string           { return string(rune('a' + i%2)) }
func clusterNetwork(i int) string { return fmt.Sprintf("storage-%d", i) }
func tenantNetwork(i int) string  { return fmt.Sprintf("private-%d", i) }
