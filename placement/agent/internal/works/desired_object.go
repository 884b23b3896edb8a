// SPDX-License-Identifier: Apache-2.0

package works

import (
	"context"
	"fmt"
	"maps"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/dynamic"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/agent/internal/records"
)

// desiredObject is one manifest of a Work, decoded.
type desiredObject struct {
	gvr    schema.GroupVersionResource
	object *unstructured.Unstructured
}

// parseManifest decodes a manifest and adds the label and the annotations of the agent's objects.
func parseManifest(spec v1alpha1.WorkSpec, m v1alpha1.Manifest) (desiredObject, error) {
	o := &unstructured.Unstructured{}
	if err := json.Unmarshal(m.Object.Raw, &o.Object); err != nil {
		return desiredObject{}, fmt.Errorf("decode manifest of %s: %w", m.Resource, err)
	}
	gvk := o.GroupVersionKind()
	if gvk.Kind == "" || gvk.Version == "" || o.GetName() == "" || m.Resource == "" {
		return desiredObject{}, fmt.Errorf("read manifest of %s %q: must have apiVersion, kind, metadata.name and resource", gvk, o.GetName())
	}
	// Owners and finalizers decide when this cluster deletes the object; only the API server writes the
	// other fields.
	meta, _ := o.Object["metadata"].(map[string]any) // it has the name
	maps.DeleteFunc(meta, func(field string, _ any) bool {
		return !slices.Contains([]string{"name", "namespace", "labels", "annotations"}, field)
	})
	delete(o.Object, "status")
	labels, annotations := o.GetLabels(), o.GetAnnotations()
	if labels == nil {
		labels = map[string]string{}
	}
	if annotations == nil {
		annotations = map[string]string{}
	}
	labels[v1alpha1.ManagedLabel] = "true"
	delete(labels, v1alpha1.AccessLabel) // only the cluster's admin gives access
	annotations[v1alpha1.SourceUIDAnnotation] = string(spec.Source.UID)
	annotations[v1alpha1.HubUIDAnnotation] = string(spec.HubUID)
	o.SetLabels(labels)
	o.SetAnnotations(annotations)
	return desiredObject{gvr: gvk.GroupVersion().WithResource(m.Resource), object: o}, nil
}

// key returns the records.ObjectKey.
func (t desiredObject) key() string {
	return records.ObjectKey(t.gvr.Group, t.gvr.Resource, t.object.GetNamespace(), t.object.GetName())
}

// String names the object in messages: "deployments.apps default/web".
func (t desiredObject) String() string {
	return t.gvr.GroupResource().String() + " " + t.object.GetNamespace() + "/" + t.object.GetName()
}

// kubectlArgs names the object in a kubectl command: "deployments.apps/web --namespace=default".
func (t desiredObject) kubectlArgs() string {
	name := t.gvr.GroupResource().String() + "/" + t.object.GetName()
	if ns := t.object.GetNamespace(); ns != "" {
		name += " --namespace=" + ns
	}
	return name
}

// resourceClient returns the client for the object's resource and namespace.
func (t desiredObject) resourceClient(c dynamic.Interface) dynamic.ResourceInterface {
	if ns := t.object.GetNamespace(); ns != "" {
		return c.Resource(t.gvr).Namespace(ns)
	}
	return c.Resource(t.gvr)
}

// readLive returns the live object; nil when there is none.
func (t desiredObject) readLive(ctx context.Context, c dynamic.Interface) (*unstructured.Unstructured, error) {
	live, err := t.resourceClient(c).Get(ctx, t.object.GetName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("get %s: %w", t, err)
	}
	return live, nil
}

// newRecordEntry returns an entry for a record, without the UID of an object.
func (t desiredObject) newRecordEntry() v1alpha1.AppliedObject {
	return v1alpha1.AppliedObject{
		Group: t.gvr.Group, Version: t.gvr.Version, Resource: t.gvr.Resource,
		Kind: t.object.GetKind(), Namespace: t.object.GetNamespace(), Name: t.object.GetName(),
	}
}
