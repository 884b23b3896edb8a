// SPDX-License-Identifier: Apache-2.0

package works

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/agent/internal/managedfields"
	"github.com/patchbay-cni/patchbay/placement/agent/internal/podindex"
)

const (
	// podsEndTimeout is how long the Pods of an object may take to end before the agent reports it.
	podsEndTimeout = time.Minute
	// overdueAfter is how long a Pod may exist after its grace period before the agent reports it.
	overdueAfter = 30 * time.Second
)

// objectRemover deletes and releases objects in the cluster.
type objectRemover struct {
	dynamic    dynamic.Interface
	discovery  discovery.DiscoveryInterface
	guard      Guard
	namespaces *namespaceAccess
	pods       *podindex.Index

	goneSince sync.Map // by UID: the time since when an object with remaining Pods is gone
}

// removalProgress is the progress of a removal.
type removalProgress struct {
	// done is true when nothing is left, or what is left is released.
	done bool
	// blocked is what blocks the removal; a user may have to act.
	blocked string
	// pending is what the removal waits for; it ends without a user.
	pending string
}

// combine adds the progress of one more object. The messages of the first object stay.
func (p removalProgress) combine(more removalProgress) removalProgress {
	return removalProgress{done: p.done && more.done, blocked: cmp.Or(p.blocked, more.blocked), pending: cmp.Or(p.pending, more.pending)}
}

// removeRecorded removes all objects of a record, the last one first. It removes an object with the UID of
// the record even if the label and the annotations of the agent's objects are missing.
func (r *objectRemover) removeRecorded(ctx context.Context, rec *v1alpha1.AppliedWork, policy v1alpha1.OnDelete) (removalProgress, error) {
	spec := &rec.Spec.Work
	at := removalProgress{done: true}
	for _, o := range slices.Backward(objectsToRemove(rec)) {
		t := objectFromRecord(o)
		live, err := r.readForRemoval(ctx, t, spec, o.UID)
		if err != nil {
			return removalProgress{blocked: at.blocked}, err
		}
		switch {
		case live == nil:
			at = at.combine(r.podsProgress(t, o.UID, time.Now()))
			continue
		case live.GetUID() != o.UID && !createdFor(spec.HubUID, spec.Source.UID, live):
			continue // the agent may not have created it: it stays
		}
		one, err := r.removeObject(ctx, t, live, policy)
		if err != nil {
			return removalProgress{blocked: at.blocked}, err
		}
		at = at.combine(one)
	}
	return at, nil
}

// objectsToRemove returns the objects of a record, and those of its manifests without an entry: the agent
// may have stopped between the creation of an object and the update of the record. UIDs that the record
// lacks come from the order, if it has them.
func objectsToRemove(rec *v1alpha1.AppliedWork) []v1alpha1.AppliedObject {
	objects := slices.Clone(rec.Status.Objects)
	for i, m := range rec.Spec.Work.Manifests {
		t, err := parseManifest(rec.Spec.Work, m)
		if err != nil {
			continue
		}
		at := slices.IndexFunc(objects, func(o v1alpha1.AppliedObject) bool { return objectFromRecord(o).key() == t.key() })
		if at < 0 {
			at, objects = len(objects), append(objects, t.newRecordEntry())
		}
		objects[at].UID = cmp.Or(objects[at].UID, removalUID(&rec.Spec.Work, i))
	}
	return objects
}

// objectFromRecord returns an object of a record as one that can be removed.
func objectFromRecord(o v1alpha1.AppliedObject) desiredObject {
	u := &unstructured.Unstructured{Object: map[string]any{}}
	u.SetGroupVersionKind(schema.GroupVersionKind{Group: o.Group, Version: o.Version, Kind: o.Kind})
	u.SetNamespace(o.Namespace)
	u.SetName(o.Name)
	return desiredObject{gvr: schema.GroupVersionResource{Group: o.Group, Version: o.Version, Resource: o.Resource}, object: u}
}

// removalUID returns the UID that an order has for the object of a manifest; "" when it has none.
func removalUID(spec *v1alpha1.WorkSpec, manifest int) types.UID {
	if spec.Removal == nil || manifest >= len(spec.Removal.UIDs) {
		return ""
	}
	return spec.Removal.UIDs[manifest]
}

// createdFor tells whether the agent created a live object for a hub from a source.
func createdFor(hub, source types.UID, live *unstructured.Unstructured) bool {
	a := live.GetAnnotations()
	return a[v1alpha1.HubUIDAnnotation] == string(hub) && a[v1alpha1.SourceUIDAnnotation] == string(source) && managedfields.OfAgent(live) != nil
}

// removeUnrecorded removes an object that an order names and no record has. The object must have the
// label and the annotations of the agent's objects, and the UID of the order if that has one. An object
// with only some of them is an error: a user may have removed the others to keep it.
func (r *objectRemover) removeUnrecorded(ctx context.Context, t desiredObject, spec *v1alpha1.WorkSpec, uid types.UID) (removalProgress, error) {
	live, err := r.readForRemoval(ctx, t, spec, uid)
	switch {
	case err != nil:
		return removalProgress{}, err
	case live == nil:
		return r.podsProgress(t, uid, time.Now()), nil
	}
	same, order := live.GetUID() == uid, spec.Removal
	isAgents := createdFor(spec.HubUID, order.SourceUID, live) && live.GetLabels()[v1alpha1.ManagedLabel] == "true"
	switch {
	case isAgents && (same || uid == ""), same && order.Policy == v1alpha1.OnDeleteOrphan:
		return r.removeObject(ctx, t, live, order.Policy)
	case live.GetLabels()[v1alpha1.ManagedLabel] == v1alpha1.ManagedReleased:
		return removalProgress{done: true}, nil // a user in the cluster keeps it
	case !same && !hasAgentMarks(live):
		return removalProgress{done: true}, nil // another object of that name, which is not the agent's
	}
	why := fmt.Sprintf("metadata.uid: the object has UID %s, and the order is for UID %s", live.GetUID(), uid)
	switch {
	case same:
		why = fmt.Sprintf("metadata: the object has the UID of the order, and not the label %s and the annotations %s and %s that the agent gave it",
			v1alpha1.ManagedLabel, v1alpha1.HubUIDAnnotation, v1alpha1.SourceUIDAnnotation)
	case uid == "":
		why = fmt.Sprintf("metadata.uid: the object has UID %s, and the order has no UID", live.GetUID())
	}
	return removalProgress{}, &conditionError{reason: v1alpha1.ReasonRecordLost, message: fmt.Sprintf(
		"%s: %s, and the AppliedWork that recorded it is lost. Delete the object in the cluster, or keep it there: kubectl label --overwrite %s %s=%s",
		t, why, t.kubectlArgs(), v1alpha1.ManagedLabel, v1alpha1.ManagedReleased)}
}

// hasAgentMarks tells whether an object has a label, an annotation or a field of an agent. An object that
// existed before, and was not adopted, has none.
func hasAgentMarks(live *unstructured.Unstructured) bool {
	a, fields := live.GetAnnotations(), live.GetManagedFields()
	return live.GetLabels()[v1alpha1.ManagedLabel] != "" || a[v1alpha1.HubUIDAnnotation] != "" || a[v1alpha1.SourceUIDAnnotation] != "" ||
		len(managedfields.WithoutAgent(fields)) < len(fields)
}

// readForRemoval reads a live object to remove it; nil when there is none. An object that the agent may not
// read does not count as gone, unless the agent never had the rights to create it.
func (r *objectRemover) readForRemoval(ctx context.Context, t desiredObject, spec *v1alpha1.WorkSpec, uid types.UID) (*unstructured.Unstructured, error) {
	live, err := r.readServedVersion(ctx, t)
	if uid == "" && apierrors.IsMethodNotSupported(err) {
		return nil, nil
	}
	switch {
	case apierrors.IsInternalError(err):
		return nil, err // not from a webhook: these are not called for reads
	case err == nil || !apierrors.IsForbidden(err):
		return live, asRemovalError(t, err)
	}
	forbidden := asRemovalError(t, err)
	if ns := t.object.GetNamespace(); ns != "" && r.guard.refusalMessage(t) == "" {
		access, settled, err := r.namespaces.restoreAccess(ctx, ns, spec)
		switch {
		case err != nil:
			return nil, asRemovalError(t, err)
		case access.missing:
			return nil, nil
		case access.allowed != "" && !settled:
			return nil, &conditionError{reason: v1alpha1.ReasonProgressing, message: fmt.Sprintf("%s: the agent's rights in namespace %s are new", t, ns)}
		}
	}
	if uid == "" {
		return nil, nil // the agent may not write there, and reported no object
	}
	return nil, forbidden
}

// readServedVersion reads a live object to remove it; nil when there is none. It reads a kind that is
// served in another version in that one. A kind that is no longer defined has no objects.
func (r *objectRemover) readServedVersion(ctx context.Context, t desiredObject) (*unstructured.Unstructured, error) {
	live, err := t.resourceClient(r.dynamic).Get(ctx, t.object.GetName(), metav1.GetOptions{})
	if err != nil && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) && apierrors.IsNotFound(err) {
		version, err := r.servedVersion(t)
		if version == "" || err != nil {
			return nil, errors.Join(err, r.checkKindUndefined(ctx, t))
		}
		t.gvr.Version = version
		live, err = t.resourceClient(r.dynamic).Get(ctx, t.object.GetName(), metav1.GetOptions{})
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

// servedVersion returns a version in which the API server serves the object's kind; "" when in none.
func (r *objectRemover) servedVersion(t desiredObject) (string, error) {
	groups, err := r.discovery.ServerGroups()
	if err != nil {
		return "", fmt.Errorf("discover versions of %s: %w", t.gvr.GroupResource(), err)
	}
	for _, g := range groups.Groups {
		if g.Name != t.gvr.Group {
			continue
		}
		for _, v := range g.Versions {
			list, err := r.discovery.ServerResourcesForGroupVersion(v.GroupVersion)
			if err != nil {
				return "", fmt.Errorf("discover versions of %s: %w", t.gvr.GroupResource(), err)
			}
			if slices.ContainsFunc(list.APIResources, func(a metav1.APIResource) bool { return a.Name == t.gvr.Resource }) {
				return v.Version, nil
			}
		}
	}
	return "", nil
}

// checkKindUndefined returns an error while the CustomResourceDefinition of a kind that is not served
// exists: then its objects exist, too, and cannot be removed.
func (r *objectRemover) checkKindUndefined(ctx context.Context, t desiredObject) error {
	name := t.gvr.GroupResource().String()
	_, err := r.dynamic.Resource(apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions")).Get(ctx, name, metav1.GetOptions{})
	if err == nil {
		return &conditionError{reason: v1alpha1.ReasonRefused, message: fmt.Sprintf("%s: its kind is not served, so it cannot be removed: "+
			"CustomResourceDefinition %s must serve a version, or be deleted with all objects of the kind", t, name)}
	}
	if apierrors.IsNotFound(err) {
		return nil
	}
	return fmt.Errorf("get CustomResourceDefinition %s: %w", name, err)
}

// asRemovalError turns a rejection by the API server, or by an admission webhook, into a *conditionError.
// Errors that may not recur it returns unchanged.
func asRemovalError(t desiredObject, err error) error {
	var status apierrors.APIStatus
	if err == nil || !errors.As(err, &status) || apierrors.IsConflict(err) || apierrors.IsTooManyRequests(err) ||
		apierrors.IsServiceUnavailable(err) || apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) || apierrors.IsUnauthorized(err) {
		return err
	}
	return &conditionError{
		reason: v1alpha1.ReasonRefused, forbidden: apierrors.IsForbidden(err),
		message: fmt.Sprintf("%s: the API server rejected the removal: %s", t, status.Status().Message),
	}
}

// removeObject deletes an object, or releases it.
func (r *objectRemover) removeObject(ctx context.Context, t desiredObject, live *unstructured.Unstructured, policy v1alpha1.OnDelete) (removalProgress, error) {
	t.gvr.Version = live.GroupVersionKind().Version // it may be served in another version than it was applied in
	switch {
	case policy == v1alpha1.OnDeleteOrphan:
		return removalProgress{done: true}, r.releaseObject(ctx, t, live)
	case live.GetDeletionTimestamp() == nil:
		return removalProgress{}, r.deleteObject(ctx, t, live)
	}
	return deletionProgress(t, live, r.pods, time.Now()), nil
}

// deleteObject requests the deletion of the live object with its UID.
func (r *objectRemover) deleteObject(ctx context.Context, t desiredObject, live *unstructured.Unstructured) error {
	uid, propagation := live.GetUID(), metav1.DeletePropagationBackground
	if makesPods(t.gvr.GroupResource()) {
		propagation = metav1.DeletePropagationForeground
	}
	err := t.resourceClient(r.dynamic).Delete(ctx, live.GetName(), metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &uid}, PropagationPolicy: &propagation,
	})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return asRemovalError(t, fmt.Errorf("delete %s: %w", t, err))
	}
	return nil // the next reconciliation finds whether it is gone
}

// makesPods tells whether Kubernetes creates Pods for objects of a kind. The agent deletes these in the
// foreground: they are gone after their Pods, so that the hub does not start them in another cluster
// while they run here.
func makesPods(gr schema.GroupResource) bool {
	return gr.Group == appsv1.GroupName || gr.Group == batchv1.GroupName || gr == schema.GroupResource{Resource: "replicationcontrollers"}
}

// releaseObject removes the agent's label, annotations and field ownership in one write that changes
// nothing else. To apply an empty manifest would remove the fields.
func (r *objectRemover) releaseObject(ctx context.Context, t desiredObject, live *unstructured.Unstructured) error {
	annotations := live.GetAnnotations()
	if live.GetLabels()[v1alpha1.ManagedLabel] == "" && annotations[v1alpha1.SourceUIDAnnotation] == "" && annotations[v1alpha1.HubUIDAnnotation] == "" {
		return nil // it is released already; without the label the agent may not write it
	}
	patch := []map[string]any{
		{"op": "test", "path": "/metadata/uid", "value": live.GetUID()},
		{"op": "test", "path": "/metadata/resourceVersion", "value": live.GetResourceVersion()},
		{"op": "replace", "path": "/metadata/managedFields", "value": managedfields.WithoutAgent(live.GetManagedFields())},
	}
	if _, ok := live.GetLabels()[v1alpha1.ManagedLabel]; ok {
		patch = append(patch, removeKeyPatch("labels", v1alpha1.ManagedLabel))
	}
	for _, name := range []string{v1alpha1.SourceUIDAnnotation, v1alpha1.HubUIDAnnotation} {
		if _, ok := annotations[name]; ok {
			patch = append(patch, removeKeyPatch("annotations", name))
		}
	}
	raw, err := json.Marshal(patch)
	if err != nil {
		return fmt.Errorf("encode patch of %s: %w", t, err)
	}
	_, err = t.resourceClient(r.dynamic).Patch(ctx, live.GetName(), types.JSONPatchType, raw, metav1.PatchOptions{FieldManager: v1alpha1.AgentFieldManager})
	if err != nil && !apierrors.IsNotFound(err) {
		return asRemovalError(t, fmt.Errorf("release %s: %w", t, err))
	}
	return nil
}

// removeKeyPatch returns the JSON patch operation that removes a label or an annotation (RFC 6901: "/" is
// "~1").
func removeKeyPatch(of, name string) map[string]any {
	return map[string]any{"op": "remove", "path": "/metadata/" + of + "/" + strings.ReplaceAll(name, "/", "~1")}
}

// deletionProgress returns the progress of an object that is being deleted. Pods that end within their
// grace period are pending: a Warning about them would be one about a healthy move. A finalizer of
// another controller blocks at once.
func deletionProgress(t desiredObject, live *unstructured.Unstructured, pods *podindex.Index, now time.Time) removalProgress {
	const advice = "Make sure that their controllers run, or remove the finalizers"
	since := live.GetDeletionTimestamp().Time // of a Pod: when its grace period ends
	text := since.UTC().Format(time.RFC3339)
	if others := podindex.BlockingFinalizers(live, now); len(others) > 0 {
		return removalProgress{blocked: fmt.Sprintf("%s: it is being deleted, and its finalizers block the deletion: %s. %s", t, strings.Join(others, ", "), advice)}
	}
	if !slices.Contains(live.GetFinalizers(), metav1.FinalizerDeleteDependents) {
		if now.Sub(since) < overdueAfter {
			return removalProgress{pending: fmt.Sprintf("%s: it is being deleted, and its grace period ends at %s", t, text)}
		}
		return removalProgress{blocked: fmt.Sprintf("%s: it is being deleted, its grace period ended at %s, and the Pod still exists. Check its node", t, text)}
	}
	name, others := pods.BlockedDependent(live.GetUID(), now)
	switch {
	case name != "":
		return removalProgress{blocked: fmt.Sprintf("%s: it is being deleted (%s), and the deletion waits for %s, which its finalizers block: %s. %s",
			t, metav1.FinalizerDeleteDependents, name, strings.Join(others, ", "), advice)}
	case now.Sub(since) < podsEndTimeout:
		return removalProgress{pending: fmt.Sprintf("%s: it is being deleted, and the deletion waits for its Pods to end", t)}
	case len(pods.PodsOf(live.GetUID())) == 0:
		return removalProgress{blocked: fmt.Sprintf("%s: it is being deleted since %s (%s), and the cluster's garbage collector has not finished the deletion. "+
			"Make sure that kube-controller-manager runs", t, text, metav1.FinalizerDeleteDependents)}
	}
	return removalProgress{blocked: fmt.Sprintf("%s: it is being deleted since %s (%s), and the deletion waits for its Pods to end. "+
		"Wait for their grace periods; if they do not end, check their nodes", t, text, metav1.FinalizerDeleteDependents)}
}

// podsProgress returns the progress of an object that is gone, or was never created: after a deletion in
// the background its Pods run until the garbage collector has deleted them.
func (r *objectRemover) podsProgress(t desiredObject, uid types.UID, now time.Time) removalProgress {
	if uid == "" || len(r.pods.PodsOf(uid)) == 0 {
		r.goneSince.Delete(uid)
		return removalProgress{done: true}
	}
	value, _ := r.goneSince.LoadOrStore(uid, now)
	if since, ok := value.(time.Time); ok && now.Sub(since) >= podsEndTimeout {
		return removalProgress{blocked: fmt.Sprintf("%s: it was deleted, and some of its Pods still exist. "+
			"Wait for their grace periods; if they do not end, check their nodes, and that kube-controller-manager runs", t)}
	}
	return removalProgress{pending: fmt.Sprintf("%s: it was deleted, and its Pods have not ended", t)}
}
