// SPDX-License-Identifier: Apache-2.0

// Package apply writes the objects of a plan by server-side apply, and removes those that were applied before
// and are in the plan no more.
package apply

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/operator/internal/render"
)

// Applier applies objects. It remembers what it has applied, so that it sends no request for an object that
// nobody has changed since. It is for one goroutine.
type Applier struct {
	writer client.Writer
	// live reads from the API server.
	live client.Reader
	// cache has the metadata of the objects with InstallationLabel.
	cache client.Reader

	applied map[Key]record
}

// Key names an object.
type Key struct {
	schema.GroupKind
	types.NamespacedName
}

// record is an object after it was applied.
type record struct {
	// source is the object of the plan. An object of a plan changes only in the phase Node.
	source          *unstructured.Unstructured
	desired         uint64
	uid             types.UID
	resourceVersion string
	generation      int64
}

// New returns an Applier that has applied nothing.
func New(live client.Client, cache client.Reader) *Applier {
	return &Applier{writer: live, live: live, cache: cache, applied: map[Key]record{}}
}

// KeyOf returns the key of an object.
func KeyOf(o client.Object) Key {
	return Key{
		GroupKind:      o.GetObjectKind().GroupVersionKind().GroupKind(),
		NamespacedName: types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()},
	}
}

// Has reports whether the Applier has applied an object of this name.
func (a *Applier) Has(o client.Object) bool {
	_, ok := a.applied[KeyOf(o)]
	return ok
}

// Generation returns the generation of an object after it was applied, or 0.
func (a *Applier) Generation(o client.Object) int64 { return a.applied[KeyOf(o)].generation }

// TerminatingError means that an object is as desired, and is being deleted.
type TerminatingError struct{ message string }

// Error implements error.
func (e *TerminatingError) Error() string { return e.message }

// terminating returns a TerminatingError if an object is being deleted. Its text changes only with the finalizers.
func terminating(o client.Object) error {
	if o.GetDeletionTimestamp() == nil {
		return nil
	}
	finalizers := slices.Sorted(slices.Values(o.GetFinalizers()))
	message := fmt.Sprintf("%s must be gone before it is applied again: it is being deleted, and its finalizers are %s", describe(o), cmp.Or(strings.Join(finalizers, ", "), "none"))
	if slices.Contains(finalizers, definitionFinalizer) {
		message += fmt.Sprintf(". kubectl get %s --all-namespaces lists the objects that are deleted with it", o.GetName())
	}
	return &TerminatingError{message: message}
}

// definitionFinalizer stays on a CustomResourceDefinition in deletion until none of its objects is left.
const definitionFinalizer = "customresourcecleanup.apiextensions.k8s.io"

// Apply applies an object unless it is known to be as desired. It takes over fields that other managers own,
// such as kubectl or helm. What they own beside these stays, except in policies and webhooks. The error is a
// TerminatingError if the object is being deleted: it has to be applied again when it is gone.
func (a *Applier) Apply(ctx context.Context, o render.Object) error {
	key := KeyOf(o)
	desired := a.applied[key].desired
	if a.applied[key].source != o.Unstructured || o.Phase == render.Node {
		var err error
		if desired, err = digest(o.Object); err != nil {
			return err
		}
	}
	live, err := a.unchanged(ctx, o, a.applied[key], desired)
	if err != nil {
		return err
	}
	if live != nil {
		r := a.applied[key]
		r.source = o.Unstructured
		a.applied[key] = r
		return terminating(live)
	}
	if _, ok := a.applied[key]; !ok {
		if err := a.takeOver(ctx, o); err != nil {
			return err
		}
	}
	if err := a.replace(ctx, o); err != nil {
		return err
	}
	sent := o.DeepCopy()
	err = a.writer.Apply(ctx, client.ApplyConfigurationFromUnstructured(sent), client.FieldOwner(render.Manager), client.ForceOwnership)
	if err != nil {
		delete(a.applied, key)
		return fmt.Errorf("apply %s: %w", describe(o), err)
	}
	a.applied[key] = record{source: o.Unstructured, desired: desired, uid: sent.GetUID(), resourceVersion: sent.GetResourceVersion(), generation: sent.GetGeneration()}
	return terminating(sent)
}

// LimitToOne lets one node at most be without a ready Pod of a DaemonSet, and changes nothing else of it. The next
// Apply takes the field over.
func (a *Applier) LimitToOne(ctx context.Context, o render.Object) error {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(o.GroupVersionKind())
	u.SetNamespace(o.GetNamespace())
	u.SetName(o.GetName())
	patch := client.RawPatch(types.MergePatchType, []byte(`{"spec": {"updateStrategy": {"rollingUpdate": {"maxUnavailable": 1}}}}`))
	if err := a.writer.Patch(ctx, u, patch, client.FieldOwner(render.Manager)); err != nil {
		return fmt.Errorf("limit the roll-out of %s: %w", describe(o), err)
	}
	return nil
}

// Check returns an error if the API server rejects a field of an object, before anything else is changed. It asks only
// if the object is new or has changed. An object that the operator takes over later may conflict with what an installer
// has set, so it is not checked.
func (a *Applier) Check(ctx context.Context, o render.Object) error {
	last, known := a.applied[KeyOf(o)]
	if known && last.source == o.Unstructured {
		return nil
	}
	if !known {
		live := metadataOf(o.GroupVersionKind())
		if err := a.live.Get(ctx, client.ObjectKeyFromObject(o), live); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("read %s: %w", describe(o), err)
		}
		if live.UID != "" && !IsApplied(live) {
			return nil
		}
	}
	err := a.writer.Apply(ctx, client.ApplyConfigurationFromUnstructured(o.DeepCopy()), client.FieldOwner(render.Manager), client.ForceOwnership, client.DryRunAll)
	if apierrors.IsInvalid(err) {
		return fmt.Errorf("apply %s, with nothing changed yet: %w", describe(o), err)
	}
	return nil // what else can fail may be there when it is the object's turn, such as its namespace
}

// unchanged returns the object of the cache if it is as it was after it was applied. A cache that is behind leads to a
// request that changes nothing.
func (a *Applier) unchanged(ctx context.Context, o render.Object, r record, desired uint64) (*metav1.PartialObjectMetadata, error) {
	if r.uid == "" || r.desired != desired {
		return nil, nil
	}
	live := metadataOf(o.GroupVersionKind())
	if err := a.cache.Get(ctx, client.ObjectKeyFromObject(o), live); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return nil, fmt.Errorf("read %s: %w", describe(o), err)
	}
	switch {
	case live.UID != r.uid:
		return nil, nil
	case live.ResourceVersion == r.resourceVersion:
		return live, nil
	// A new status changes the resourceVersion, and not the generation.
	case hasStatus(o.GetKind()) && live.Generation == r.generation && contains(live.Labels, o.GetLabels()) && contains(live.Annotations, o.GetAnnotations()):
		return live, nil
	}
	return nil, nil
}

// hasStatus tells the kinds with a generation whose status changes often.
func hasStatus(kind string) bool {
	return slices.Contains([]string{"CustomResourceDefinition", "DaemonSet", "Deployment", "PodDisruptionBudget"}, kind)
}

func contains(all, part map[string]string) bool {
	for key, value := range part {
		if got, ok := all[key]; !ok || got != value {
			return false
		}
	}
	return true
}

// digest returns a number that differs for objects that differ.
func digest(object map[string]any) (uint64, error) {
	text, err := json.Marshal(object)
	if err != nil {
		return 0, fmt.Errorf("encode object: %w", err)
	}
	h := fnv.New64a()
	h.Write(text)
	return h.Sum64(), nil
}

// describe names an object in an error.
func describe(o client.Object) string {
	name := o.GetName()
	if o.GetNamespace() != "" {
		name = o.GetNamespace() + "/" + name
	}
	return o.GetObjectKind().GroupVersionKind().Kind + " " + name
}

func metadataOf(kind schema.GroupVersionKind) *metav1.PartialObjectMetadata {
	o := &metav1.PartialObjectMetadata{}
	o.SetGroupVersionKind(kind)
	return o
}

// Prune removes the objects that were applied before and are not in the plan, programs first and policies last.
// An object counts as applied if it has the label and fields of the operator's manager: a copy that a user has
// made has the label only. The deletion is for the UID that was read.
func (a *Applier) Prune(ctx context.Context, plan *render.Plan) error {
	wanted := map[Key]bool{}
	for _, o := range plan.Objects {
		wanted[KeyOf(o)] = true
	}
	for _, kind := range slices.Backward(PrunedKinds()) {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		if err := a.cache.List(ctx, list, client.HasLabels{render.InstallationLabel}); err != nil {
			return fmt.Errorf("list %s: %w", kind.Kind, err)
		}
		for i := range list.Items {
			o := &list.Items[i]
			o.SetGroupVersionKind(kind)
			if wanted[KeyOf(o)] || o.DeletionTimestamp != nil || !IsApplied(o) {
				continue
			}
			if err := a.delete(ctx, o); err != nil {
				return err
			}
		}
	}
	return nil
}

// delete removes an object as it was read. Of one whose status changes often, it is enough that it has the UID.
func (a *Applier) delete(ctx context.Context, o *metav1.PartialObjectMetadata) error {
	expected := client.Preconditions{UID: &o.UID}
	if !hasStatus(o.Kind) {
		expected.ResourceVersion = &o.ResourceVersion
	}
	err := Delete(ctx, a.writer, o, expected)
	if apierrors.IsForbidden(err) {
		// The operator may delete what some version of it had. Another object has forged fields, and must not keep the
		// operator from reporting the state of the parts.
		logr.FromContextOrDiscard(ctx).Info("Failed to delete an object that looks like one of an earlier version", "object", describe(o), "error", err.Error())
		return nil
	}
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete %s: %w", describe(o), err)
	}
	delete(a.applied, KeyOf(o))
	return nil
}

// Delete deletes an object of which the metadata is known. An object that stays, because of a finalizer, is the answer,
// and the client decodes it: it needs no type for an unstructured object.
func Delete(ctx context.Context, writer client.Writer, o *metav1.PartialObjectMetadata, options ...client.DeleteOption) error {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(o.GroupVersionKind())
	u.SetNamespace(o.Namespace)
	u.SetName(o.Name)
	return writer.Delete(ctx, u, options...)
}

// IsApplied reports whether the operator has applied the object.
func IsApplied(o client.Object) bool {
	return slices.ContainsFunc(o.GetManagedFields(), func(f metav1.ManagedFieldsEntry) bool {
		return f.Manager == render.Manager && f.Operation == metav1.ManagedFieldsOperationApply
	})
}

// PrunedKinds returns the kinds of which objects are removed, in the order of their installation. Definitions and
// namespaces are not among them: with them, users' objects would be lost.
func PrunedKinds() []schema.GroupVersionKind {
	const rbac, admission = "rbac.authorization.k8s.io", "admissionregistration.k8s.io"
	return []schema.GroupVersionKind{
		{Group: admission, Version: "v1", Kind: "ValidatingAdmissionPolicy"},
		{Group: admission, Version: "v1", Kind: "ValidatingAdmissionPolicyBinding"},
		{Version: "v1", Kind: "ServiceAccount"},
		{Group: rbac, Version: "v1", Kind: "ClusterRole"},
		{Group: rbac, Version: "v1", Kind: "ClusterRoleBinding"},
		{Group: rbac, Version: "v1", Kind: "Role"},
		{Group: rbac, Version: "v1", Kind: "RoleBinding"},
		{Version: "v1", Kind: "Service"},
		{Group: admission, Version: "v1", Kind: "MutatingWebhookConfiguration"},
		{Group: admission, Version: "v1", Kind: "ValidatingWebhookConfiguration"},
		{Group: "policy", Version: "v1", Kind: "PodDisruptionBudget"},
		{Group: "apps", Version: "v1", Kind: "Deployment"},
		{Group: "apps", Version: "v1", Kind: "DaemonSet"},
	}
}

// WatchedKinds returns all kinds that the operator applies.
func WatchedKinds() []schema.GroupVersionKind {
	return append(PrunedKinds(), schema.GroupVersionKind{Version: "v1", Kind: "Namespace"},
		schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
}
