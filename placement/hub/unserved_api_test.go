// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package hub

import (
	"context"
	"fmt"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// A kind that is not served any more says nothing of its objects: they are not taken for
// deleted, and stay where they run.
func TestUnservedIsNotDeleted(t *testing.T) {
	b := newBench(t)
	ns := b.namespace("unserved")
	b.cluster("unserved-east", v1alpha1.ClusterSpec{})
	definition := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "queues.unserved.example.com"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "unserved.example.com", Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "queues", Singular: "queue", Kind: "Queue", ListKind: "QueueList"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", XPreserveUnknownFields: new(true),
				}},
			}},
		},
	}
	b.create(definition)
	gvk := schema.GroupVersionKind{Group: "unserved.example.com", Version: "v1", Kind: "Queue"}
	queue := empty(gvk)
	queue.SetNamespace(ns)
	queue.SetName("orders")
	queue.SetAnnotations(map[string]string{v1alpha1.ClustersAnnotation: "unserved-east"})
	b.eventually("the kind to be served", func(ctx context.Context) error {
		return client.IgnoreAlreadyExists(b.client.Create(ctx, queue.DeepCopy()))
	})
	key := Key{GroupKind: gvk.GroupKind(), Namespace: ns, Name: "orders"}
	b.runs(key, map[string]int32{"unserved-east": 0})
	read := func(k Key) (*unstructured.Unstructured, error) { // as a pass does
		p := &pass{hub: &hub{direct: b.client}, key: k, kind: kind{GroupVersionKind: gvk}}
		err := p.readObject(t.Context())
		return p.object, err
	}
	other := key
	other.Name = "other"
	if o, err := read(other); o != nil || err != nil {
		t.Errorf("an object that is not there: got %v, %v", o, err)
	}
	off := client.RawPatch("application/json-patch+json", []byte(`[{"op":"replace","path":"/spec/versions/0/served","value":false}]`))
	if err := b.client.Patch(t.Context(), definition, off); err != nil {
		t.Fatal(err)
	}
	b.eventually("the version to be off", func(ctx context.Context) error {
		if err := b.client.Get(ctx, client.ObjectKeyFromObject(queue), empty(gvk)); !apierrors.IsNotFound(err) {
			return fmt.Errorf("%w: %w", errNotYet, err)
		}
		return nil
	})
	if o, err := read(key); err == nil {
		t.Errorf("an object of a version that is off: got %v and no error", o)
	}
	w := &v1alpha1.Work{}
	if err := b.client.Get(t.Context(), key.work("unserved-east"), w); err != nil {
		t.Fatal(err)
	}
	if w.Spec.Removal != nil {
		t.Errorf("its Work is ordered removed: %+v", w.Spec.Removal)
	}
}
