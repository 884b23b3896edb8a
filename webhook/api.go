// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"fmt"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/v1"
)

// newScheme has the kinds that admission reads or writes.
func newScheme() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, admissionv1.AddToScheme, metav1.AddMetaToScheme, v1.AddToScheme,
	} {
		if err := add(s); err != nil {
			return nil, fmt.Errorf("register kinds: %w", err)
		}
	}
	return s, nil
}

// newMapper maps those kinds to resources without asking the API server.
func newMapper() meta.RESTMapper {
	m := meta.NewDefaultRESTMapper(nil)
	core, ours, admission := corev1.SchemeGroupVersion, v1.SchemeGroupVersion(), admissionv1.SchemeGroupVersion
	m.Add(core.WithKind("Namespace"), meta.RESTScopeRoot)
	m.Add(core.WithKind("Secret"), meta.RESTScopeNamespace)
	m.Add(admission.WithKind("MutatingWebhookConfiguration"), meta.RESTScopeRoot)
	m.Add(admission.WithKind("ValidatingWebhookConfiguration"), meta.RESTScopeRoot)
	m.Add(ours.WithKind(v1.KindClusterNetwork), meta.RESTScopeRoot)
	m.Add(ours.WithKind(v1.KindTenantNetwork), meta.RESTScopeNamespace)
	m.Add(ours.WithKind(v1.KindDanmNet), meta.RESTScopeNamespace)
	m.Add(ours.WithKind("TenantConfig"), meta.RESTScopeRoot)
	m.Add(ours.WithKind("DanmEp"), meta.RESTScopeNamespace)
	return m
}

// newClient reads from the API server: an answer from an old cache would refuse what
// is right or let in what is wrong.
func newClient(cfg *rest.Config) (client.Client, error) {
	scheme, err := newScheme()
	if err != nil {
		return nil, err
	}
	c, err := client.New(cfg, client.Options{Scheme: scheme, Mapper: newMapper()})
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	return c, nil
}
