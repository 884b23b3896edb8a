// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// NewScheme returns a scheme with the kinds that our programs read or write.
func NewScheme() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, discoveryv1.AddToScheme, metav1.AddMetaToScheme, v1.AddToScheme} {
		if err := add(s); err != nil {
			return nil, fmt.Errorf("register kinds: %w", err)
		}
	}
	return s, nil
}

// NewMapper maps those kinds to resources without discovery, so that a program starts while the API
// server is unreachable.
func NewMapper() meta.RESTMapper {
	m := meta.NewDefaultRESTMapper(nil)
	core, apps, ours := corev1.SchemeGroupVersion, appsv1.SchemeGroupVersion, v1.SchemeGroupVersion()
	m.Add(core.WithKind("Pod"), meta.RESTScopeNamespace)
	m.Add(core.WithKind("Node"), meta.RESTScopeRoot)
	m.Add(core.WithKind("Namespace"), meta.RESTScopeRoot)
	m.Add(core.WithKind("Event"), meta.RESTScopeNamespace)
	m.Add(core.WithKind("Service"), meta.RESTScopeNamespace)
	m.Add(core.WithKind("Endpoints"), meta.RESTScopeNamespace)
	m.Add(discoveryv1.SchemeGroupVersion.WithKind("EndpointSlice"), meta.RESTScopeNamespace)
	m.Add(apps.WithKind("DaemonSet"), meta.RESTScopeNamespace)
	m.Add(ours.WithKind(v1.KindClusterNetwork), meta.RESTScopeRoot)
	m.Add(ours.WithKind(v1.KindTenantNetwork), meta.RESTScopeNamespace)
	m.Add(ours.WithKind(v1.KindDanmNet), meta.RESTScopeNamespace)
	m.Add(ours.WithKind("TenantConfig"), meta.RESTScopeRoot)
	m.Add(ours.WithKind("DanmEp"), meta.RESTScopeNamespace)
	m.Add(ours.WithKind("NodeNetwork"), meta.RESTScopeRoot)
	m.Add(ours.WithKind("NetworkView"), meta.RESTScopeNamespace)
	addNetworkAttachmentDefinitions(m)
	return m
}

// NetworkAttachmentDefinitionVersion is the apiVersion of NetworkAttachmentDefinitions.
const NetworkAttachmentDefinitionVersion = "k8s.cni.cncf.io/v1"

// addNetworkAttachmentDefinitions maps the kind, whose resource name does not follow from it.
func addNetworkAttachmentDefinitions(m *meta.DefaultRESTMapper) {
	v := schema.GroupVersion{Group: "k8s.cni.cncf.io", Version: "v1"}
	m.AddSpecific(v.WithKind(network.KindNetworkAttachmentDefinition), v.WithResource("network-attachment-definitions"),
		v.WithResource("network-attachment-definition"), meta.RESTScopeNamespace)
}
