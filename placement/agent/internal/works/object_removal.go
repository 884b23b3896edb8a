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
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

const (
	// podsEndTimeout is how long the Pods of an object may take to end before that is reported.
	podsEndTimeout = time.Minute
	// overdueAfter is how long a Pod may outlive its grace period before that is reported.
	overdueAfter = 30 * time.Second
)

// removalProgress is how far a removal is.
type removalProgress struct {
	// done tells that nothing is left, or that what is left is let go.
	done bool
	// blocked says what holds the removal; somebody may have to act.
	blocked string
	// pending says what is under way and ends by itself.
	pending string
}

// combine adds the progress of one more object: what holds the first is said.
func (p removalProgress) combine(more removalProgress) removalProgress {
	return removalProgress{done: p.done && more.done, blocked: cmp.Or(p.blocked, more.blocked), pending: cmp.Or(p.pending, more.pending)}
}

// removeRecorded carries out an order over all objects of a record, the last one first. An object with the
// UID of the record is removed also when somebody has taken its marks off.
func (a *objectApplier) removeRecorded(ctx context.Context, rec *v1alpha1.AppliedWork, policy v1alpha1.OnDelete) (removalProgress, error) {
	spec := &rec.Spec.Work
	at := removalProgress{done: true}
	for _, o := range slices.Backward(objectsToRemove(rec)) {
		t := objectFromRecord(o)
		live, err := a.readForRemoval(ctx, t, spec, o.UID)
		if err != nil {
			return removalProgress{blocked: at.blocked}, err
		}
		switch {
		case live == nil:
			at = at.combine(a.podsProgress(t, o.UID, time.Now()))
			continue
		case live.GetUID() != o.UID && !createdFor(spec.HubUID, spec.Source.UID, live):
			continue // not known to be ours: it stays
		}
		one, err := a.removeObject(ctx, t, live, policy)
		if err != nil {
			return removalProgress{blocked: at.blocked}, err
		}
		at = at.combine(one)
	}
	return at, nil
}

// objectsToRemove are the objects of a record, and those that it has no entry of: the agent may
// have ended after it made one, before it noted that. The order has the UIDs that the record
// lacks, if the hub knows them.
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

// objectFromRecord is an object of a record as a target that can be removed.
func objectFromRecord(o v1alpha1.AppliedObject) desiredObject {
	u := &unstructured.Unstructured{Object: map[string]any{}}
	u.SetGroupVersionKind(schema.GroupVersionKind{Group: o.Group, Version: o.Version, Kind: o.Kind})
	u.SetNamespace(o.Namespace)
	u.SetName(o.Name)
	return desiredObject{gvr: schema.GroupVersionResource{Group: o.Group, Version: o.Version, Resource: o.Resource}, object: u}
}

// removalUID is the UID that an order has for a manifest; "" when it has none.
func removalUID(spec *v1alpha1.WorkSpec, manifest int) types.UID {
	if spec.Removal == nil || manifest >= len(spec.Removal.UIDs) {
		return ""
	}
	return spec.Removal.UIDs[manifest]
}

// createdFor tells whether the agent made a live object for a hub, from a source.
func createdFor(hub, source types.UID, live *unstructured.Unstructured) bool {
	a := live.GetAnnotations()
	return a[v1alpha1.HubUIDAnnotation] == string(hub) && a[v1alpha1.SourceUIDAnnotation] == string(source) && agentFields(live) != nil
}

// removeUnrecorded removes an object that an order names and no record is of. It must have our marks
// and the UID that the order has; without a UID the marks must do. What may be ours and cannot be told
// is a refusal: somebody may have taken its marks off to keep it.
func (a *objectApplier) removeUnrecorded(ctx context.Context, t desiredObject, spec *v1alpha1.WorkSpec, uid types.UID) (removalProgress, error) {
	live, err := a.readForRemoval(ctx, t, spec, uid)
	switch {
	case err != nil:
		return removalProgress{}, err
	case live == nil:
		return a.podsProgress(t, uid, time.Now()), nil
	}
	same, order := live.GetUID() == uid, spec.Removal
	marked := createdFor(spec.HubUID, order.SourceUID, live) && live.GetLabels()[v1alpha1.ManagedLabel] == "true"
	switch {
	case marked && (same || uid == ""), same && order.Policy == v1alpha1.OnDeleteOrphan:
		return a.removeObject(ctx, t, live, order.Policy)
	case live.GetLabels()[v1alpha1.ManagedLabel] == v1alpha1.ManagedReleased:
		return removalProgress{done: true}, nil // a person in the cluster keeps it
	case !same && !hasAgentMarks(live):
		return removalProgress{done: true}, nil // another object of that name, which is not ours
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

// hasAgentMarks tells whether an object has anything of an agent's. An object that was there before, and
// was not taken over, has nothing.
func hasAgentMarks(live *unstructured.Unstructured) bool {
	a, fields := live.GetAnnotations(), live.GetManagedFields()
	return live.GetLabels()[v1alpha1.ManagedLabel] != "" || a[v1alpha1.HubUIDAnnotation] != "" || a[v1alpha1.SourceUIDAnnotation] != "" ||
		len(withoutAgentEntries(fields)) < len(fields)
}

// readForRemoval reads a live object to remove it; nil when there is none. What the agent may not read
// is not taken for gone, unless the agent never had the rights to make it there.
func (a *objectApplier) readForRemoval(ctx context.Context, t desiredObject, spec *v1alpha1.WorkSpec, uid types.UID) (*unstructured.Unstructured, error) {
	live, err := a.readServedVersion(ctx, t)
	if uid == "" && apierrors.IsMethodNotSupported(err) {
		return nil, nil
	}
	switch {
	case apierrors.IsInternalError(err):
		return nil, err // no webhook refuses to read
	case err == nil || !apierrors.IsForbidden(err):
		return live, asRemovalError(t, err)
	}
	forbidden := asRemovalError(t, err)
	if ns := t.object.GetNamespace(); ns != "" && a.guard.refusalMessage(t) == "" {
		access, settled, err := a.namespaces.restoreAccess(ctx, ns, spec)
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
		return nil, nil // the agent may not write there, and nothing was reported
	}
	return nil, forbidden
}

// readServedVersion reads a live object to remove it; nil when there is none. A kind that is served in
// another version is read in that one; one that is not defined any more has no objects.
func (a *objectApplier) readServedVersion(ctx context.Context, t desiredObject) (*unstructured.Unstructured, error) {
	live, err := a.resourceClient(t).Get(ctx, t.object.GetName(), metav1.GetOptions{})
	if err != nil && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) && apierrors.IsNotFound(err) {
		version, err := a.servedVersion(t)
		if version == "" || err != nil {
			return nil, errors.Join(err, a.checkKindUndefined(ctx, t))
		}
		t.gvr.Version = version
		live, err = a.resourceClient(t).Get(ctx, t.object.GetName(), metav1.GetOptions{})
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

// servedVersion is a version in which the API server serves a target's kind now; "" when in none.
func (a *objectApplier) servedVersion(t desiredObject) (string, error) {
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

// checkKindUndefined checks that the definition of a kind that is not served is gone, and its objects with
// it. While it is there they are, too, and nobody can remove them.
func (a *objectApplier) checkKindUndefined(ctx context.Context, t desiredObject) error {
	name := t.gvr.GroupResource().String()
	_, err := a.dynamic.Resource(apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions")).Get(ctx, name, metav1.GetOptions{})
	if err == nil {
		return &conditionError{reason: v1alpha1.ReasonRefused, message: fmt.Sprintf("%s: its kind is not served, so it cannot be removed: "+
			"CustomResourceDefinition %s must serve a version, or be deleted with all objects of the kind", t, name)}
	}
	if apierrors.IsNotFound(err) {
		return nil
	}
	return fmt.Errorf("get CustomResourceDefinition %s: %w", name, err)
}

// asRemovalError turns what the API server, or an admission webhook, refuses into a refusal;
// what may succeed the next time passes.
func asRemovalError(t desiredObject, err error) error {
	var status apierrors.APIStatus
	if err == nil || !errors.As(err, &status) || apierrors.IsConflict(err) || apierrors.IsTooManyRequests(err) ||
		apierrors.IsServiceUnavailable(err) || apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) || apierrors.IsUnauthorized(err) {
		return err
	}
	return &conditionError{
		reason: v1alpha1.ReasonRefused, forbidden: apierrors.IsForbidden(err),
		message: fmt.Sprintf("%s: the API server refuses the removal: %s", t, status.Status().Message),
	}
}

// removeObject deletes an object, or lets it go.
func (a *objectApplier) removeObject(ctx context.Context, t desiredObject, live *unstructured.Unstructured, policy v1alpha1.OnDelete) (removalProgress, error) {
	t.gvr.Version = live.GroupVersionKind().Version // it may have been read in another one than it was made in
	switch {
	case policy == v1alpha1.OnDeleteOrphan:
		return removalProgress{done: true}, a.releaseObject(ctx, t, live)
	case live.GetDeletionTimestamp() == nil:
		return removalProgress{}, a.deleteObject(ctx, t, live)
	}
	return deletionProgress(t, live, a.pods, time.Now()), nil
}

// deleteObject asks for the deletion of this very object.
func (a *objectApplier) deleteObject(ctx context.Context, t desiredObject, live *unstructured.Unstructured) error {
	uid, how := live.GetUID(), metav1.DeletePropagationBackground
	if makesPods(t.gvr.GroupResource()) {
		how = metav1.DeletePropagationForeground
	}
	err := a.resourceClient(t).Delete(ctx, live.GetName(), metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &uid}, PropagationPolicy: &how,
	})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return asRemovalError(t, fmt.Errorf("delete %s: %w", t, err))
	}
	return nil // the next look tells whether it is gone
}

// makesPods tells whether Kubernetes makes Pods for objects of a kind. These are deleted in the
// foreground: they are gone when their Pods are, so that the hub does not start them in another
// cluster while they run.
func makesPods(gr schema.GroupResource) bool {
	return gr.Group == appsv1.GroupName || gr.Group == batchv1.GroupName || gr == schema.GroupResource{Resource: "replicationcontrollers"}
}

// releaseObject takes off what marks the object as ours, and our ownership of its fields, in one
// write that changes nothing else: applying an empty manifest would take the fields away.
func (a *objectApplier) releaseObject(ctx context.Context, t desiredObject, live *unstructured.Unstructured) error {
	notes := live.GetAnnotations()
	if live.GetLabels()[v1alpha1.ManagedLabel] == "" && notes[v1alpha1.SourceUIDAnnotation] == "" && notes[v1alpha1.HubUIDAnnotation] == "" {
		return nil // somebody has let it go; the agent may not write it without the label
	}
	patch := []map[string]any{
		{"op": "test", "path": "/metadata/uid", "value": live.GetUID()},
		{"op": "test", "path": "/metadata/resourceVersion", "value": live.GetResourceVersion()},
		{"op": "replace", "path": "/metadata/managedFields", "value": withoutAgentEntries(live.GetManagedFields())},
	}
	if _, ok := live.GetLabels()[v1alpha1.ManagedLabel]; ok {
		patch = append(patch, removeKeyPatch("labels", v1alpha1.ManagedLabel))
	}
	for _, name := range []string{v1alpha1.SourceUIDAnnotation, v1alpha1.HubUIDAnnotation} {
		if _, ok := notes[name]; ok {
			patch = append(patch, removeKeyPatch("annotations", name))
		}
	}
	raw, err := json.Marshal(patch)
	if err != nil {
		return fmt.Errorf("encode patch of %s: %w", t, err)
	}
	_, err = a.resourceClient(t).Patch(ctx, live.GetName(), types.JSONPatchType, raw, metav1.PatchOptions{FieldManager: v1alpha1.AgentFieldManager})
	if err != nil && !apierrors.IsNotFound(err) {
		return asRemovalError(t, fmt.Errorf("release %s: %w", t, err))
	}
	return nil
}

// removeKeyPatch takes a label or an annotation off, by JSON patch (RFC 6901: "/" is "~1").
func removeKeyPatch(of, name string) map[string]any {
	return map[string]any{"op": "remove", "path": "/metadata/" + of + "/" + strings.ReplaceAll(name, "/", "~1")}
}

// deletionProgress tells how far an object is that is being deleted. Pods that end within their grace period
// are under way: a report of them would be a Warning about a healthy move. What another's finalizer
// holds is reported at once.
func deletionProgress(t desiredObject, live *unstructured.Unstructured, made *podIndex, now time.Time) removalProgress {
	const act = "Make sure that their controllers run, or remove the finalizers"
	since := live.GetDeletionTimestamp().Time // of a Pod: when its grace period ends
	text := since.UTC().Format(time.RFC3339)
	if others := blockingFinalizers(live, now); len(others) > 0 {
		return removalProgress{blocked: fmt.Sprintf("%s: it is being deleted, and its finalizers hold it: %s. %s", t, strings.Join(others, ", "), act)}
	}
	if !slices.Contains(live.GetFinalizers(), metav1.FinalizerDeleteDependents) {
		if now.Sub(since) < overdueAfter {
			return removalProgress{pending: fmt.Sprintf("%s: it is being deleted, and has until %s", t, text)}
		}
		return removalProgress{blocked: fmt.Sprintf("%s: it is being deleted, its grace period ended at %s, and it is still there. Check its node", t, text)}
	}
	name, others := made.blockedDependent(live.GetUID(), now)
	switch {
	case name != "":
		return removalProgress{blocked: fmt.Sprintf("%s: it is being deleted (%s), and waits for %s, which its finalizers hold: %s. %s",
			t, metav1.FinalizerDeleteDependents, name, strings.Join(others, ", "), act)}
	case now.Sub(since) < podsEndTimeout:
		return removalProgress{pending: fmt.Sprintf("%s: it is being deleted, and waits for its Pods to end", t)}
	case len(made.podsOf(live.GetUID())) == 0:
		return removalProgress{blocked: fmt.Sprintf("%s: it is being deleted since %s (%s), and the cluster's garbage collector has not finished. "+
			"Make sure that kube-controller-manager runs", t, text, metav1.FinalizerDeleteDependents)}
	}
	return removalProgress{blocked: fmt.Sprintf("%s: it is being deleted since %s (%s), and waits for its Pods to end. "+
		"Wait for their grace periods; if they do not end, check their nodes", t, text, metav1.FinalizerDeleteDependents)}
}

// podsProgress tells whether an object that is gone, or was never made, has left Pods behind: those of one
// that somebody has deleted in the background run on until the garbage collector has ended them.
func (a *objectApplier) podsProgress(t desiredObject, uid types.UID, now time.Time) removalProgress {
	if uid == "" || len(a.pods.podsOf(uid)) == 0 {
		a.goneSince.Delete(uid)
		return removalProgress{done: true}
	}
	value, _ := a.goneSince.LoadOrStore(uid, now)
	if since, ok := value.(time.Time); ok && now.Sub(since) >= podsEndTimeout {
		return removalProgress{blocked: fmt.Sprintf("%s: it is gone, and Pods of it are still there. "+
			"Wait for their grace periods; if they do not end, check their nodes, and that kube-controller-manager runs", t)}
	}
	return removalProgress{pending: fmt.Sprintf("%s: it is gone, and its Pods have not ended", t)}
}
