// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package controllers

import (
	"context"
	"fmt"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/kinds"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/scope"
)

// The answer 404 for a kind that is not served any more proves nothing about its objects: they do not
// count as deleted, and stay in their clusters.
func TestUnservedIsNotDeleted(t *testing.T) {
	h := newTestHub(t)
	ns := h.namespace("unserved")
	h.cluster("unserved-east", v1alpha1.ClusterSpec{})
	definition := queueDefinition("unserved.example.com")
	h.create(definition)
	gvk := schema.GroupVersionKind{Group: "unserved.example.com", Version: "v1", Kind: "Queue"}
	queue := kinds.Unstructured(gvk)
	queue.SetNamespace(ns)
	queue.SetName("orders")
	queue.SetAnnotations(map[string]string{v1alpha1.ClustersAnnotation: "unserved-east"})
	h.eventually("the kind to be served", func(ctx context.Context) error {
		return client.IgnoreAlreadyExists(h.client.Create(ctx, queue.DeepCopy()))
	})
	key := kinds.Key{GroupKind: gvk.GroupKind(), Namespace: ns, Name: "orders"}
	h.expectWorks(key, map[string]int32{"unserved-east": 0})
	read := func(k kinds.Key) (*unstructured.Unstructured, error) { // as each reconciliation does
		return scope.ReadObject(t.Context(), h.client, k, kinds.Kind{GroupVersionKind: gvk})
	}
	other := key
	other.Name = "other"
	if o, err := read(other); o != nil || err != nil {
		t.Errorf("an object that does not exist: got %v, %v", o, err)
	}
	off := client.RawPatch("application/json-patch+json", []byte(`[{"op":"replace","path":"/spec/versions/0/served","value":false}]`))
	if err := h.client.Patch(t.Context(), definition, off); err != nil {
		t.Fatal(err)
	}
	h.eventually("the version not to be served", func(ctx context.Context) error {
		if err := h.client.Get(ctx, client.ObjectKeyFromObject(queue), kinds.Unstructured(gvk)); !apierrors.IsNotFound(err) {
			return fmt.Errorf("%w: %w", errNotYet, err)
		}
		return nil
	})
	if o, err := read(key); err == nil {
		t.Errorf("an object of a version that is not served: got %v and no error", o)
	}
	w := &v1alpha1.Work{}
	if err := h.client.Get(t.Context(), key.Work("unserved-east"), w); err != nil {
		t.Fatal(err)
	}
	if w.Spec.Removal != nil {
		t.Errorf("its Work is ordered removed: %+v", w.Spec.Removal)
	}
}

// A kind whose objects cannot be listed, since its conversion webhook does not answer, does not delay
// other kinds.
func TestUnlistedKindDelaysNoOther(t *testing.T) {
	h := newTestHub(t)
	ns := h.namespace("unlisted")
	h.cluster("unlisted-east", v1alpha1.ClusterSpec{})
	definition := queueDefinition("unlisted.example.com")
	h.create(definition)
	t.Cleanup(func() { _ = h.client.Delete(context.Background(), definition) })
	old := kinds.Unstructured(schema.GroupVersionKind{Group: "unlisted.example.com", Version: "v1", Kind: "Queue"})
	old.SetNamespace(ns)
	old.SetName("orders")
	h.eventually("the kind to be served", func(ctx context.Context) error {
		return client.IgnoreAlreadyExists(h.client.Create(ctx, old.DeepCopy()))
	})
	if err := h.client.Get(t.Context(), client.ObjectKeyFromObject(definition), definition); err != nil {
		t.Fatal(err)
	}
	definition.Spec.Versions = []apiextensionsv1.CustomResourceDefinitionVersion{anyVersion("v1", false), anyVersion("v2", true)}
	definition.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{
		Strategy: apiextensionsv1.WebhookConverter,
		Webhook: &apiextensionsv1.WebhookConversion{
			ClientConfig:             &apiextensionsv1.WebhookClientConfig{URL: new("https://127.0.0.1:1/convert")},
			ConversionReviewVersions: []string{"v1"},
		},
	}
	if err := h.client.Update(t.Context(), definition); err != nil {
		t.Fatal(err)
	}
	h.eventually("objects of the new version not to be listed", func(ctx context.Context) error {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(schema.GroupVersionKind{Group: "unlisted.example.com", Version: "v2", Kind: "QueueList"})
		if err := h.client.List(ctx, list); err == nil || apierrors.IsNotFound(err) {
			return fmt.Errorf("%w: %w", errNotYet, err)
		}
		return nil
	})
	for end, i := time.Now().Add(10*discoverySoon), 0; time.Now().Before(end); i++ { // by then the hub watches the new version
		name := fmt.Sprintf("web-%d", i)
		h.create(configMap(ns, name, ""))
		h.create(&v1alpha1.Placement{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Spec: v1alpha1.PlacementSpec{
			Objects:  []v1alpha1.ObjectSelector{{Kind: "ConfigMap", Names: []v1alpha1.ObjectName{v1alpha1.ObjectName(name)}}},
			Clusters: v1alpha1.ClusterChoice{Names: []v1alpha1.ClusterName{"unlisted-east"}},
		}})
		h.expectWorks(configKey(ns, name), map[string]int32{"unlisted-east": 0})
	}
}

// queueDefinition returns the definition of the kind Queue of a group, in version v1.
func queueDefinition(group string) *apiextensionsv1.CustomResourceDefinition {
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "queues." + group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: group, Scope: apiextensionsv1.NamespaceScoped,
			Names:    apiextensionsv1.CustomResourceDefinitionNames{Plural: "queues", Singular: "queue", Kind: "Queue", ListKind: "QueueList"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{anyVersion("v1", true)},
		},
	}
}

// anyVersion returns a version of a custom kind that allows all fields.
func anyVersion(name string, storage bool) apiextensionsv1.CustomResourceDefinitionVersion {
	return apiextensionsv1.CustomResourceDefinitionVersion{
		Name: name, Served: true, Storage: storage,
		Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
			Type: "object", XPreserveUnknownFields: new(true),
		}},
	}
}
