// SPDX-License-Identifier: Apache-2.0

package render

import (
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
)

// pod collects what a Pod needs.
func (f *follower) pod(spec *corev1.PodSpec) {
	f.pulls(spec.ImagePullSecrets)
	if spec.ServiceAccountName != "default" { // every namespace has that
		f.add("ServiceAccount", spec.ServiceAccountName)
	}
	for i := range spec.Volumes {
		f.volume(&spec.Volumes[i].VolumeSource)
	}
	for _, list := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range list {
			f.environment(list[i].EnvFrom, list[i].Env)
		}
	}
}

// environment collects what a container's environment is read from.
func (f *follower) environment(from []corev1.EnvFromSource, env []corev1.EnvVar) {
	for _, e := range from {
		if e.ConfigMapRef != nil {
			f.add("ConfigMap", e.ConfigMapRef.Name)
		}
		if e.SecretRef != nil {
			f.add("Secret", e.SecretRef.Name)
		}
	}
	for _, e := range env {
		if e.ValueFrom == nil {
			continue
		}
		if ref := e.ValueFrom.ConfigMapKeyRef; ref != nil {
			f.add("ConfigMap", ref.Name)
		}
		if ref := e.ValueFrom.SecretKeyRef; ref != nil {
			f.add("Secret", ref.Name)
		}
	}
}

// volume collects what a volume is filled from or opened with.
func (f *follower) volume(v *corev1.VolumeSource) {
	if v.ConfigMap != nil {
		f.add("ConfigMap", v.ConfigMap.Name)
	}
	if v.Secret != nil {
		f.add("Secret", v.Secret.SecretName)
	}
	if v.PersistentVolumeClaim != nil {
		f.add("PersistentVolumeClaim", v.PersistentVolumeClaim.ClaimName)
	}
	if v.CSI != nil && v.CSI.NodePublishSecretRef != nil {
		f.add("Secret", v.CSI.NodePublishSecretRef.Name)
	}
	if v.ISCSI != nil && v.ISCSI.SecretRef != nil {
		f.add("Secret", v.ISCSI.SecretRef.Name)
	}
	if v.Projected != nil {
		for _, s := range v.Projected.Sources {
			if s.ConfigMap != nil {
				f.add("ConfigMap", s.ConfigMap.Name)
			}
			if s.Secret != nil {
				f.add("Secret", s.Secret.Name)
			}
		}
	}
}

// pulls collects the Secrets that images are pulled with.
func (f *follower) pulls(refs []corev1.LocalObjectReference) {
	for _, ref := range refs {
		f.add("Secret", ref.Name)
	}
}

// ingress collects the Services that an Ingress leads to and its certificates.
func (f *follower) ingress(spec *networkingv1.IngressSpec) {
	backend := func(b *networkingv1.IngressBackend) {
		if b != nil && b.Service != nil {
			f.add("Service", b.Service.Name)
		}
	}
	backend(spec.DefaultBackend)
	for _, rule := range spec.Rules {
		if rule.HTTP != nil {
			for i := range rule.HTTP.Paths {
				backend(&rule.HTTP.Paths[i].Backend)
			}
		}
	}
	for _, tls := range spec.TLS {
		f.add("Secret", tls.SecretName)
	}
}
