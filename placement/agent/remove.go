// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
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
	"sigs.k8s.io/controller-runtime/pkg/client"

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

// orderedUID is the UID that an order has for a manifest; "" when it has none.
func orderedUID(spec *v1alpha1.WorkSpec, manifest int) types.UID {
	if spec.Removal == nil || manifest >= len(spec.Removal.UIDs) {
		return ""
	}
	return spec.Removal.UIDs[manifest]
}

// madeFor tells whether the agent made a live object of what a Work says, for this life of
// its source.
func madeFor(spec v1alpha1.WorkSpec, live *unstructured.Unstructured) bool {
	a := live.GetAnnotations()
	return a[v1alpha1.HubUIDAnnotation] == string(spec.HubUID) && a[v1alpha1.SourceUIDAnnotation] == string(spec.Source.UID) && owned(live) != nil
}

// remove carries out an order over all objects of a record, the last one first. It tells
// whether all are gone, or let go, and else what holds the first.
func (a *applier) remove(ctx context.Context, rec *v1alpha1.AppliedWork, policy v1alpha1.OnDelete) (held string, done bool, err error) {
	done = true
	for _, o := range slices.Backward(promised(rec)) {
		t := recorded(o)
		live, err := a.stored(ctx, t)
		if o.UID == "" && (apierrors.IsForbidden(err) || apierrors.IsMethodNotSupported(err)) {
			continue // what may not be read was not made
		}
		if apierrors.IsForbidden(err) && a.namespaces.gone(ctx, o.Namespace) {
			continue // gone with its namespace, and so are the agent's rights there
		}
		if err != nil {
			return held, false, refused(t, err)
		}
		if live == nil || live.GetUID() != o.UID && !madeFor(rec.Spec.Work, live) {
			continue // gone, not made, or not known to be ours: it stays
		}
		why, finished, err := a.end(ctx, t, live, policy)
		if err != nil {
			return held, false, err
		}
		held, done = cmp.Or(held, why), done && finished
	}
	return held, done, nil
}

// end deletes an object, or lets it go. It tells whether that is done, and what holds it.
func (a *applier) end(ctx context.Context, t target, live *unstructured.Unstructured, policy v1alpha1.OnDelete) (held string, done bool, err error) {
	if policy == v1alpha1.OnDeleteOrphan {
		return "", true, a.letGo(ctx, t, live)
	}
	if live.GetDeletionTimestamp() != nil && len(live.GetFinalizers()) > 0 {
		held = fmt.Sprintf("%s: it is being deleted, and its finalizers hold it: %s. See to it that their controllers run, or take them off",
			t, strings.Join(live.GetFinalizers(), ", "))
	}
	return held, false, a.delete(ctx, t, live)
}

// stored reads a live object to remove it; nil when there is none. A kind that is served in
// another version is read in that one; one that is not served at all has no objects.
func (a *applier) stored(ctx context.Context, t target) (*unstructured.Unstructured, error) {
	live, err := a.resource(t).Get(ctx, t.object.GetName(), metav1.GetOptions{})
	if err != nil && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) && apierrors.IsNotFound(err) {
		version, err := a.served(t)
		if version == "" || err != nil {
			return nil, err
		}
		t.gvr.Version = version
		live, err = a.resource(t).Get(ctx, t.object.GetName(), metav1.GetOptions{})
		if client.IgnoreNotFound(err) != nil || err == nil {
			return live, err
		}
		return nil, nil
	}
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("get %s: %w", t, err)
	}
	return live, nil
}

// served is a version in which the API server serves a target's kind now; "" when in none.
func (a *applier) served(t target) (string, error) {
	groups, err := a.discovery.ServerGroups()
	if err != nil {
		return "", fmt.Errorf("look for versions of %s: %w", t.gvr.GroupResource(), err)
	}
	for _, g := range groups.Groups {
		if g.Name != t.gvr.Group {
			continue
		}
		for _, v := range g.Versions {
			list, err := a.discovery.ServerResourcesForGroupVersion(v.GroupVersion)
			if err != nil {
				return "", fmt.Errorf("look for versions of %s: %w", t.gvr.GroupResource(), err)
			}
			if slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == t.gvr.Resource }) {
				return v.Version, nil
			}
		}
	}
	return "", nil
}

// removeUnrecorded removes an object that an order names and no record is of, if it is known to
// be the one: by the UID that the hub was told of, or by what marks it as made for the order's
// source. It tells whether none is left, and what holds it. What may be ours and cannot be told
// is a refusal.
func (a *applier) removeUnrecorded(ctx context.Context, t target, spec *v1alpha1.WorkSpec, uid types.UID) (held string, done bool, err error) {
	access, err := a.namespaces.find(ctx, t.object.GetNamespace(), spec)
	switch {
	case err != nil:
		return "", false, refused(t, err)
	case access.missing:
		return "", true, nil
	case uid == "" && (access.may == "" || a.guard.refuses(t) != ""):
		return "", true, nil // what may not be written, and was not reported, was not made
	}
	live, err := a.stored(ctx, t)
	switch {
	case apierrors.IsForbidden(err) && a.namespaces.settling(t.object.GetNamespace()):
		return "", false, &refusal{reason: v1alpha1.ReasonProgressing, message: fmt.Sprintf("%s: the agent's rights there are new", t)}
	case err != nil:
		return "", false, refused(t, err)
	case live == nil, uid == "" && !t.ours(live):
		return "", true, nil
	case live.GetUID() == uid, uid == "" && madeFor(*spec, live):
		return a.end(ctx, t, live, spec.Removal.Policy)
	case !t.ours(live):
		return "", true, nil // another object of that name, which is not ours
	}
	return "", false, &refusal{reason: v1alpha1.ReasonRecordLost, message: fmt.Sprintf(
		"%s: the record of it is lost, and the one that is here (UID %s) cannot be told to be the one that is to be removed (UID %q). "+
			"Delete it in the cluster, or take its annotation %s off to keep it", t, live.GetUID(), uid, v1alpha1.HubUIDAnnotation)}
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
		return refused(t, fmt.Errorf("delete %s: %w", t, err))
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
		return refused(t, fmt.Errorf("let go of %s: %w", t, err))
	}
	return nil
}

// removal takes a label or an annotation off, by JSON patch (RFC 6901: "/" is "~1").
func removal(of, name string) map[string]any {
	return map[string]any{"op": "remove", "path": "/metadata/" + of + "/" + strings.ReplaceAll(name, "/", "~1")}
}
