// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"fmt"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
)

// newClient returns a client without a cache: from an old cache, admission would reject valid
// objects and admit invalid ones.
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

// newScheme returns the kinds that admission reads or writes.
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

// newMapper maps those kinds to resources without discovery at the API server.
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

// pageSize is the size of a list's pages. All pages are of one consistent snapshot.
const pageSize = 500

// eachListItem lists consistently, page by page, and calls f for each object. Each page is decoded
// into a new list, because decoding into a used one can leave old fields.
func eachListItem(ctx context.Context, c client.Reader, fresh func() client.ObjectList, f func(client.Object), opts ...client.ListOption) error {
	lo := client.ListOptions{Limit: pageSize}
	lo.ApplyOptions(opts)
	for {
		list := fresh()
		if err := c.List(ctx, list, &lo); err != nil {
			return err
		}
		err := meta.EachListItem(list, func(o runtime.Object) error {
			obj, ok := o.(client.Object)
			if !ok {
				return fmt.Errorf("list item is a %T", o)
			}
			f(obj)
			return nil
		})
		if err != nil {
			return err
		}
		if lo.Continue = list.GetContinue(); lo.Continue == "" {
			return nil
		}
	}
}

// namespaceLabels reads a namespace's labels, which decide which TenantConfigs apply, from the API
// server.
func namespaceLabels(ctx context.Context, from client.Reader, namespace string) (map[string]string, error) {
	var ns corev1.Namespace
	if err := from.Get(ctx, client.ObjectKey{Name: namespace}, &ns); err != nil {
		return nil, fmt.Errorf("read labels of namespace %s: %w", namespace, err)
	}
	return ns.Labels, nil
}
