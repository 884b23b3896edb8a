// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// kinds returns what the agent reads and writes as types, and how these are mapped to
// resources: without asking an API server, as either may be away when the agent starts.
func kinds() (*runtime.Scheme, meta.RESTMapper, error) {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, coordinationv1.AddToScheme, rbacv1.AddToScheme, metav1.AddMetaToScheme, v1alpha1.AddToScheme,
	} {
		if err := add(s); err != nil {
			return nil, nil, fmt.Errorf("register kinds: %w", err)
		}
	}
	m := meta.NewDefaultRESTMapper(nil)
	m.Add(corev1.SchemeGroupVersion.WithKind("Namespace"), meta.RESTScopeRoot)
	m.Add(corev1.SchemeGroupVersion.WithKind("Secret"), meta.RESTScopeNamespace)
	m.Add(rbacv1.SchemeGroupVersion.WithKind("RoleBinding"), meta.RESTScopeNamespace)
	m.Add(coordinationv1.SchemeGroupVersion.WithKind("Lease"), meta.RESTScopeNamespace)
	m.Add(v1alpha1.SchemeGroupVersion().WithKind("Work"), meta.RESTScopeNamespace)
	m.Add(v1alpha1.SchemeGroupVersion().WithKind("WorkList"), meta.RESTScopeNamespace) // a cache of one namespace asks for the list's
	m.Add(v1alpha1.SchemeGroupVersion().WithKind("AppliedWork"), meta.RESTScopeRoot)
	m.Add(v1alpha1.SchemeGroupVersion().WithKind("Cluster"), meta.RESTScopeRoot)
	return s, m, nil
}
