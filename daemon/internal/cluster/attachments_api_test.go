// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package cluster

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
	"github.com/patchbay-cni/patchbay/internal/kube"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

// object makes an unstructured one.
func object(version, kind, namespace, name string, spec map[string]any) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	u.SetAPIVersion(version)
	u.SetKind(kind)
	u.SetNamespace(namespace)
	u.SetName(name)
	return u
}

// attachmentKind is the kind as Multus installs it.
func attachmentKind() *unstructured.Unstructured {
	const group, plural = "k8s.cni.cncf.io", "network-attachment-definitions"
	schema := map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}
	return object("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", plural+"."+group, map[string]any{
		"group": group, "scope": "Namespaced",
		"names":    map[string]any{"plural": plural, "singular": "network-attachment-definition", "kind": "NetworkAttachmentDefinition"},
		"versions": []any{map[string]any{"name": "v1", "served": true, "storage": true, "schema": map[string]any{"openAPIV3Schema": schema}}},
	})
}

// Without Multus there are none, and that is known; with it those that name a VLAN
// are followed, with the rights of deployments/, and never written.
func TestAttachments(t *testing.T) {
	env := apitest.New(t)
	ctx := logged(t)
	conn, err := Connect(env.ConfigAs(apitest.NodeDaemon(node)), node)
	if err != nil {
		t.Fatal(err)
	}
	var changes atomic.Int64
	a := NewAttachmentCache(conn, func() { changes.Add(1) })
	a.interval = 100 * time.Millisecond
	if _, err := a.List(); !errors.Is(err, attach.ErrTryAgain) {
		t.Errorf("before anything was read: %v", err)
	}
	start(ctx, t, conn.Cache.Start)
	start(ctx, t, a.Run)
	sees := func(what string, want ...string) {
		t.Helper()
		wait(t, what, func(context.Context) error {
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
	sees("a cluster without Multus")

	create := func(u *unstructured.Unstructured) { createServed(t, env, u) }
	create(attachmentKind())
	ns := env.Namespace(t)
	config := func(text string) map[string]any { return map[string]any{"config": text} }
	const tagged = `{"type":"macvlan","master":"ens4","vlan":500}`
	one := object(kube.NetworkAttachmentDefinitionVersion, "NetworkAttachmentDefinition", ns, "one", config(tagged))
	create(one)
	create(object(kube.NetworkAttachmentDefinitionVersion, "NetworkAttachmentDefinition", ns, "plain", config(`{"type":"bridge"}`)))
	create(object(kube.NetworkAttachmentDefinitionVersion, "NetworkAttachmentDefinition", ns, "wrong", config(`{"type":"macvlan","master":"ens4","vlan":5000}`)))
	sees("one that names a VLAN", ns+" ens4.500")
	if err := unstructured.SetNestedField(one.Object, `{"type":"macvlan","master":"ens4","vlan":501}`, "spec", "config"); err != nil {
		t.Fatal(err)
	}
	if err := env.Client.Update(ctx, one); err != nil {
		t.Fatal(err)
	}
	sees("another VLAN", ns+" ens4.501")
	if err := env.Client.Delete(ctx, one); err != nil {
		t.Fatal(err)
	}
	sees("none")
}

// createServed creates an object as soon as its kind is served.
func createServed(t *testing.T, env *apitest.Env, u *unstructured.Unstructured) {
	t.Helper()
	wait(t, "the kind to be served", func(ctx context.Context) error { return env.Client.Create(ctx, u) })
	t.Cleanup(func() { _ = env.Client.Delete(context.WithoutCancel(t.Context()), u) })
}
