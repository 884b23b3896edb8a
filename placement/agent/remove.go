// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// recorded is an object of a record as a target that can be removed.
func recorded(o v1alpha1.AppliedObject) target {
	u := &unstructured.Unstructured{Object: map[string]any{}}
	u.SetGroupVersionKind(schema.GroupVersionKind{Group: o.Group, Version: o.Version, Kind: o.Kind})
	u.SetNamespace(o.Namespace)
	u.SetName(o.Name)
	return target{gvr: schema.GroupVersionResource{Group: o.Group, Version: o.Version, Resource: o.Resource}, object: u}
}

// promised are the objects of a record, and those that it has no entry of: the agent may
// have ended after it made one, before it noted that.
func promised(rec *v1alpha1.AppliedWork) []v1alpha1.AppliedObject {
	objects := slices.Clone(rec.Status.Objects)
	for _, m := range rec.Spec.Work.Manifests {
		if t, err := readManifest(rec.Spec.Work, m); err == nil && t.entry(rec) == nil {
			objects = append(objects, t.unmade())
		}
	}
	return objects
}

// madeFor tells whether the agent made a live object of what a Work says, for this life of
// its source.
func madeFor(spec v1alpha1.WorkSpec, live *unstructured.Unstructured) bool {
	a := live.GetAnnotations()
	return a[v1alpha1.HubUIDAnnotation] == string(spec.HubUID) && a[v1alpha1.SourceUIDAnnotation] == string(spec.Source.UID) && owned(live) != nil
}

// remove carries out an order over all objects of a record, the last one first. It
// tells whether all are gone, or let go.
func (a *applier) remove(ctx context.Context, rec *v1alpha1.AppliedWork, policy v1alpha1.OnDelete) (done bool, err error) {
	done = true
	for _, o := range slices.Backward(promised(rec)) {
		t := recorded(o)
		live, err := a.read(ctx, t)
		if o.UID == "" && (apierrors.IsForbidden(err) || apierrors.IsMethodNotSupported(err)) {
			continue // what may not be read was not made
		}
		if apierrors.IsForbidden(err) && a.namespaces.gone(ctx, o.Namespace) {
			continue // gone with its namespace, and so are the agent's rights there
		}
		if err != nil {
			return false, err
		}
		if live == nil || live.GetUID() != o.UID && !madeFor(rec.Spec.Work, live) {
			continue // gone, not made, or not known to be ours: it stays
		}
		if policy == v1alpha1.OnDeleteOrphan {
			err = a.letGo(ctx, t, live)
		} else {
			done = false
			err = a.delete(ctx, t, live)
		}
		if err != nil {
			return false, err
		}
	}
	return done, nil
}

// delete asks once for the deletion of this very object.
func (a *applier) delete(ctx context.Context, t target, live *unstructured.Unstructured) error {
	if live.GetDeletionTimestamp() != nil {
		return nil // asked before; finalizers take their time
	}
	uid, background := live.GetUID(), metav1.DeletePropagationBackground
	err := a.resource(t).Delete(ctx, live.GetName(), metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &uid}, PropagationPolicy: &background,
	})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete %s: %w", t, err)
	}
	return nil
}

// letGo takes off what marks the object as ours, and our ownership of its fields, in one
// write that changes nothing else: applying an empty manifest would take the fields away.
func (a *applier) letGo(ctx context.Context, t target, live *unstructured.Unstructured) error {
	if owned(live) == nil && live.GetLabels()[v1alpha1.ManagedLabel] == "" {
		return nil
	}
	patch := []map[string]any{
		{"op": "test", "path": "/metadata/uid", "value": live.GetUID()},
		{"op": "test", "path": "/metadata/resourceVersion", "value": live.GetResourceVersion()},
		{"op": "replace", "path": "/metadata/managedFields", "value": withoutUs(live.GetManagedFields())},
	}
	if _, ok := live.GetLabels()[v1alpha1.ManagedLabel]; ok {
		patch = append(patch, removal("labels", v1alpha1.ManagedLabel))
	}
	for _, name := range []string{v1alpha1.SourceUIDAnnotation, v1alpha1.HubUIDAnnotation} {
		if _, ok := live.GetAnnotations()[name]; ok {
			patch = append(patch, removal("annotations", name))
		}
	}
	raw, err := json.Marshal(patch)
	if err != nil {
		return fmt.Errorf("encode patch of %s: %w", t, err)
	}
	_, err = a.resource(t).Patch(ctx, live.GetName(), types.JSONPatchType, raw, metav1.PatchOptions{FieldManager: v1alpha1.AgentManager})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("let go of %s: %w", t, err)
	}
	return nil
}

// removal takes a label or an annotation off, by JSON patch (RFC 6901: "/" is "~1").
func removal(of, name string) map[string]any {
	return map[string]any{"op": "remove", "path": "/metadata/" + of + "/" + strings.ReplaceAll(name, "/", "~1")}
}
