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
)

// A kind that is not served any more says nothing of its objects: they are not taken for
// deleted, and stay where they run.
func TestUnservedIsNotDeleted(t *testing.T) {
	b := newBench(t)
	ns := b.namespace("unserved")
	b.cluster("unserved-east", v1alpha1.ClusterSpec{})
	definition := queueDefinition("unserved.example.com")
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

// A kind whose objects cannot be listed, as its conversion webhook does not answer, holds up no
// other: policies are followed as before.
func TestUnlistedKindHoldsUpNothing(t *testing.T) {
	b := newBench(t)
	ns := b.namespace("unlisted")
	b.cluster("unlisted-east", v1alpha1.ClusterSpec{})
	definition := queueDefinition("unlisted.example.com")
	b.create(definition)
	t.Cleanup(func() { _ = b.client.Delete(context.Background(), definition) })
	old := empty(schema.GroupVersionKind{Group: "unlisted.example.com", Version: "v1", Kind: "Queue"})
	old.SetNamespace(ns)
	old.SetName("orders")
	b.eventually("the kind to be served", func(ctx context.Context) error {
		return client.IgnoreAlreadyExists(b.client.Create(ctx, old.DeepCopy()))
	})
	if err := b.client.Get(t.Context(), client.ObjectKeyFromObject(definition), definition); err != nil {
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
	if err := b.client.Update(t.Context(), definition); err != nil {
		t.Fatal(err)
	}
	b.eventually("objects of the new version not to be listed", func(ctx context.Context) error {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(schema.GroupVersionKind{Group: "unlisted.example.com", Version: "v2", Kind: "QueueList"})
		if err := b.client.List(ctx, list); err == nil || apierrors.IsNotFound(err) {
			return fmt.Errorf("%w: %w", errNotYet, err)
		}
		return nil
	})
	for end, i := time.Now().Add(10*lookSoon), 0; time.Now().Before(end); i++ { // by then the hub watches the new version
		name := fmt.Sprintf("web-%d", i)
		b.create(configMap(ns, name, ""))
		b.create(&v1alpha1.Placement{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Spec: v1alpha1.PlacementSpec{
			Objects:  []v1alpha1.ObjectSelector{{Kind: "ConfigMap", Names: []v1alpha1.ObjectName{v1alpha1.ObjectName(name)}}},
			Clusters: v1alpha1.ClusterChoice{Names: []v1alpha1.ClusterName{"unlisted-east"}},
		}})
		b.runs(configKey(ns, name), map[string]int32{"unlisted-east": 0})
	}
}

// queueDefinition defines the kind Queue of a group, in version v1.
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

// anyVersion is a version of a custom kind that takes all fields.
func anyVersion(name string, storage bool) apiextensionsv1.CustomResourceDefinitionVersion {
	return apiextensionsv1.CustomResourceDefinitionVersion{
		Name: name, Served: true, Storage: storage,
		Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
			Type: "object", XPreserveUnknownFields: new(true),
		}},
	}
}
