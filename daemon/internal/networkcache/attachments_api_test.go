// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package networkcache

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
	"github.com/patchbay-cni/patchbay/daemon/internal/kubetest"
	"github.com/patchbay-cni/patchbay/internal/kube"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

// newObject returns an unstructured object.
func newObject(version, kind, namespace, name string, spec map[string]any) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	u.SetAPIVersion(version)
	u.SetKind(kind)
	u.SetNamespace(namespace)
	u.SetName(name)
	return u
}

// attachmentKind returns the CustomResourceDefinition that Multus installs.
func attachmentKind() *unstructured.Unstructured {
	const group, plural = "k8s.cni.cncf.io", "network-attachment-definitions"
	schema := map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}
	return newObject("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", plural+"."+group, map[string]any{
		"group": group, "scope": "Namespaced",
		"names":    map[string]any{"plural": plural, "singular": "network-attachment-definition", "kind": "NetworkAttachmentDefinition"},
		"versions": []any{map[string]any{"name": "v1", "served": true, "storage": true, "schema": map[string]any{"openAPIV3Schema": schema}}},
	})
}

// A cluster without the kind has no attachments. With it, the models of those with a VLAN follow
// the objects, with the rights of deployments/.
func TestAttachments(t *testing.T) {
	env := apitest.New(t)
	ctx := kubetest.LogContext(t)
	conn := kubetest.Connect(t, env)
	var changes atomic.Int64
	a := NewAttachments(conn, func() { changes.Add(1) })
	a.interval = 100 * time.Millisecond
	if _, err := a.List(); !errors.Is(err, attach.ErrTryAgain) {
		t.Errorf("before the first read: got error %v, want ErrTryAgain", err)
	}
	kubetest.Start(ctx, t, conn.Cache.Start)
	kubetest.Start(ctx, t, a.Run)
	expect := func(what string, want ...string) {
		t.Helper()
		kubetest.Eventually(t, what, func(context.Context) error {
			list, err := a.List()
			if err != nil {
				return err
			}
			var got []string
			for _, n := range list {
				got = append(got, n.Ref.Namespace+" "+n.LinkName())
			}
			slices.Sort(got)
			if !slices.Equal(got, want) || changes.Load() == 0 {
				return fmt.Errorf("%v", got)
			}
			return nil
		})
	}
	expect("an empty list without the kind")

	create := func(u *unstructured.Unstructured) { createServed(t, env, u) }
	create(attachmentKind())
	ns := env.Namespace(t)
	config := func(text string) map[string]any { return map[string]any{"config": text} }
	const tagged = `{"type":"macvlan","master":"ens4","vlan":500}`
	one := newObject(kube.NetworkAttachmentDefinitionVersion, "NetworkAttachmentDefinition", ns, "one", config(tagged))
	create(one)
	create(newObject(kube.NetworkAttachmentDefinitionVersion, "NetworkAttachmentDefinition", ns, "no-vlan", config(`{"type":"bridge"}`)))
	create(newObject(kube.NetworkAttachmentDefinitionVersion, "NetworkAttachmentDefinition", ns, "invalid", config(`{"type":"macvlan","master":"ens4","vlan":5000}`)))
	expect("the model of VLAN 500", ns+" ens4.500")
	if err := unstructured.SetNestedField(one.Object, `{"type":"macvlan","master":"ens4","vlan":501}`, "spec", "config"); err != nil {
		t.Fatal(err)
	}
	if err := env.Client.Update(ctx, one); err != nil {
		t.Fatal(err)
	}
	expect("the model of VLAN 501", ns+" ens4.501")
	if err := env.Client.Delete(ctx, one); err != nil {
		t.Fatal(err)
	}
	expect("an empty list after the deletion")
}

// createServed creates an object as soon as its kind is served.
func createServed(t *testing.T, env *apitest.Env, u *unstructured.Unstructured) {
	t.Helper()
	kubetest.Eventually(t, "the kind to be served", func(ctx context.Context) error { return env.Client.Create(ctx, u) })
	t.Cleanup(func() { _ = env.Client.Delete(context.WithoutCancel(t.Context()), u) })
}
